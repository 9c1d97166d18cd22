"""A model server for agents of any framework; each call becomes a training step (docs/reference/gateway.md)."""
