"""Searches of 3spo and chain-search: which states to branch at, and what a step earns. It runs in the driver."""
