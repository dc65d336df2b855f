"""Memory traffic of a launch: which boxes of which tensors move, and when."""
