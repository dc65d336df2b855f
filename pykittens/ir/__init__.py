"""The kernel as data: typed values, operations and control flow, and the passes over them."""
