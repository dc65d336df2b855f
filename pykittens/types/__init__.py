"""Types of values: dtypes, tiles and their layouts; and data of devices."""
