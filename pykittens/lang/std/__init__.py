"""Functions written with operations, one file per family."""
