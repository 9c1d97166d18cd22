"""Blackbox: agents that nobody rewrote, which ask the policy as they would ask any model behind an API."""
