"""Inference engines: torch for tiny models, vLLM for the rest, alone or behind Ray actors."""
