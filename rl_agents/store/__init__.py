"""The trajectory store: sampled calls, their outcomes and training batches, on disk (docs/reference/pool.md)."""
