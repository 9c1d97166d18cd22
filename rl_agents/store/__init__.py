"""The durable pool of steps: what was sampled, what came of it, what was trained on it (docs/reference/pool.md)."""
