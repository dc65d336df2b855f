"""A ladder of kernels, each with one new idea; catalog lists them."""
