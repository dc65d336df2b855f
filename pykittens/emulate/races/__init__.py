"""The race detector, a watcher that orders accesses by vector clocks."""
