"""Facts about a kernel that hold without a run: proofs, resources and occupancy."""
