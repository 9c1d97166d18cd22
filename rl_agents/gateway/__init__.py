"""A model server for agents of any framework, whose every call becomes a step to learn from (docs/reference/gateway.md)."""
