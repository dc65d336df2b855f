"""A search for faults with random cases."""
