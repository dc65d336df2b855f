"""Memory traffic of a launch: the boxes of tensors that move, and when."""
