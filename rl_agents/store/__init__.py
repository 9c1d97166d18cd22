"""The durable pool of steps: what was sampled, what came of it, what was learned from it (docs/reference/pool.md)."""
