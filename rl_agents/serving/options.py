"""The keys of a server: model, capacity and access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_agents.algorithms import KEYS
from rl_agents.config import parse_assignments
from rl_agents.config.aliases import unknown_key
from rl_agents.config.options import key, keys_of, read_options
from rl_agents.errors import InputError


@dataclass(frozen=True)
class ServingOptions:
    """Keys of ``run.py serve --set`` and of ``serve run rl_agents.serving.app:build``."""

    checkpoint: str = key("", "a run's folder (newest checkpoint), a checkpoint, or a model's folder or public name")
    follow: bool = key(False, "load each newer checkpoint of the run (checkpoint: a run's folder)")
    follow_s: float = key(5.0, "seconds between two checks for a newer checkpoint", gt=0, needs="follow")
    model_name: str = key("", "the model's name in the API; empty: ENV-ALGO of a run, else the folder's name")
    engine: str = key("auto", "`auto` takes vLLM if it can be imported, else torch")
    min_replicas: int = key(1, "fewest engines", ge=1)
    max_replicas: int = key(1, "most engines; Serve adds one when the others are busy", ge=1)
    target_ongoing_requests: int = key(0, "requests per engine that autoscaling aims at; 0: half of max", ge=0)
    max_ongoing_requests: int = key(64, "requests in one engine at a time; it decodes them together", ge=1)
    max_queued_requests: int = key(256, "requests that may wait for an engine; others get HTTP 429", ge=1)
    max_output_tokens: int = key(0, "most sampled tokens of one answer; 0: the rest of the context", ge=0)
    max_body_kb: int = key(32768, "largest body of a request in KiB; a larger one gets HTTP 413", ge=1)
    request_timeout_s: float = key(300.0, "seconds that one answer may take before HTTP 504", gt=0)
    drain_s: float = key(10.0, "seconds that new weights wait for running answers, which then continue with them", ge=0)
    max_sessions: int = key(32, "agent sessions at a time; others get HTTP 429", ge=0)
    session_idle_s: float = key(600.0, "seconds after which an idle session is closed", gt=0)
    api_key_env: str = key("", "environment variable with the API key; empty: none, and loopback only")
    admin_key_env: str = key("", "environment variable with the key of /admin; empty: /admin only without an API key")

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> tuple[ServingOptions, dict[str, Any]]:
        """Split ``data`` into keys of the server and of a run (``max_model_len``, ``env.KEY`` ...).

        Args:
            data: values, or their YAML text as ``serve run app key=value`` passes it.

        Raises:
            InputError: unknown key (the nearest is named), a value of the wrong type or out of range.
        """
        own = keys_of(cls)
        texts = {name for name, option in own.items() if option.kind is str}
        plain = {name: raw if name in texts else _plain(raw) for name, raw in data.items()}
        rest = {name: value for name, value in plain.items() if name not in own}
        for name in rest:
            if name not in KEYS and not name.startswith("env."):
                raise unknown_key(name, [*own, *KEYS])
        options = read_options(cls, {name: value for name, value in plain.items() if name in own})
        options.check()
        return options, rest

    def check(self) -> None:
        """Refuse contradictions.

        Raises:
            InputError: the first problem.
        """
        if not self.checkpoint:
            raise InputError("checkpoint is missing: name a run's folder, a checkpoint or a model folder")
        if self.max_replicas < self.min_replicas:
            raise InputError(f"max_replicas={self.max_replicas}: must be at least min_replicas={self.min_replicas}")
        if self.target_ongoing_requests > self.max_ongoing_requests:
            raise InputError(
                f"target_ongoing_requests={self.target_ongoing_requests}: must be at most "
                f"max_ongoing_requests={self.max_ongoing_requests}"
            )
        if self.admin_key_env and not self.api_key_env:
            raise InputError("admin_key_env without api_key_env: everybody could use the rest; set both")


def _plain(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return parse_assignments([f"value={value}"])["value"]
    except InputError:
        return value
