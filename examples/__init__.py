"""A ladder of kernels, each of which adds one idea; catalog lists them."""
