"""Tools of MCP servers: a user's own tools and tasks, to evaluate and train agents with."""
