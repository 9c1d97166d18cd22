"""Shared parts of servers: errors in OpenAI's format, keys, checks of origin and size, streamed text."""
