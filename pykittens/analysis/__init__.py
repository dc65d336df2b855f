"""What a kernel costs on sm_90a, from the tables of the targets: bank conflicts, sectors, traffic and times."""
