"""Costs of memory accesses, found without a run: bank conflicts and sectors."""
