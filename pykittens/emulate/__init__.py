"""The emulator: runs a kernel on NumPy and reports each event to watchers."""
