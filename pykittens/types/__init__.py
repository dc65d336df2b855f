"""Types of values: dtypes, tiles and their layouts; and data sheets of GPUs."""
