"""Costs of a kernel on sm_90a, from the tables of the targets: bank conflicts, sectors, traffic and times."""
