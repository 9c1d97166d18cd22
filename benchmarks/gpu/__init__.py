"""Measurements for machines with a GPU: README.md in this folder."""
