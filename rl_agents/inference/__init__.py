"""Inference engines: torch for tiny models, vLLM for the rest, alone or behind Ray actors."""

from rl_agents.inference.base import Completion, Engine, EngineError, EngineSettings, Sampling, StreamingEngine, Weights
from rl_agents.inference.select import build_engine, resolve_engine

__all__ = [
    "Completion",
    "Engine",
    "EngineError",
    "EngineSettings",
    "Sampling",
    "StreamingEngine",
    "Weights",
    "build_engine",
    "resolve_engine",
]
