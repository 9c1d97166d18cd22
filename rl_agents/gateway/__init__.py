"""A model server for agents of any framework, whose every call becomes a training step (docs/reference/gateway.md)."""
