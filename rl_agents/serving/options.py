"""The keys of a server: what it serves, how much of it, and to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rl_agents.algorithms import KEYS
from rl_agents.config import parse_assignments
from rl_agents.config.aliases import unknown_key
from rl_agents.config.options import key, keys_of, read_options
from rl_agents.errors import InputError


@dataclass(frozen=True)
class ServingOptions:
    """Keys of ``run.py serve --set`` and of ``serve run rl_agents.serving.app:build``; each field says what it is."""

    checkpoint: str = key("", "a run's folder (newest checkpoint), a checkpoint, or a Hugging Face model folder")
    follow: bool = key(False, "roll in the run's newest checkpoint whenever there is one (checkpoint: a run's folder)")
    follow_s: float = key(5.0, "seconds between two looks for a newer checkpoint", gt=0, needs="follow")
    model_name: str = key("", "the model's name in the API; empty: ENV-ALGO of a run, else the folder's name")
    model_aliases: str = key("", "other names of models: NAME=MODEL, separated by commas; `*` stands for any text")
    adapters: str = key("", "LoRA adapters over the checkpoint: NAME=FOLDER, separated by commas; vLLM")
    engine: Literal["auto", "vllm", "torch"] = key("auto", "`auto` takes vLLM where it is importable, else torch")
    min_replicas: int = key(1, "engines at least", ge=1)
    max_replicas: int = key(1, "engines at most; Serve adds one when the others are busy", ge=1)
    target_ongoing_requests: int = key(0, "requests per engine that autoscaling aims at; 0: half of max", ge=0)
    max_ongoing_requests: int = key(64, "requests in one engine at a time; it decodes them together", ge=1)
    max_queued_requests: int = key(256, "requests that may wait for an engine; further ones get HTTP 429", ge=1)
    max_output_tokens: int = key(0, "sampled tokens of one answer at most; 0: what the context leaves", ge=0)
    max_choices: int = key(8, "`n` of a chat request at most", ge=1)
    max_body_kb: int = key(32768, "KiB of a request's body at most; a larger one gets HTTP 413", ge=1)
    request_timeout_s: float = key(300.0, "seconds that one answer may take before HTTP 504", gt=0)
    drain_s: float = key(
        10.0, "seconds that new weights wait for running answers; then these continue with the new ones", ge=0
    )
    max_sessions: int = key(32, "agent sessions at a time; further ones get HTTP 429", ge=0)
    session_idle_s: float = key(600.0, "seconds after which an idle session is closed", gt=0)
    session_envs: str = key("", "environments that sessions may name, separated by commas; empty: the run's own")
    session_options: str = key("", "options of environments that sessions may set, separated by commas; empty: none")
    api_key_env: str = key("", "environment variable with the API key; empty: none, and loopback only")
    admin_key_env: str = key("", "environment variable with the key of /admin; empty: /admin only without an API key")

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> tuple[ServingOptions, dict[str, Any]]:
        """Split ``data`` into a server's own keys and those of a run (``max_model_len``, ``env.KEY`` ...).

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
            InputError: the first key that cannot work, and why.
        """
        if not self.checkpoint:
            raise InputError("checkpoint is missing: name a run's folder, a checkpoint or a model folder")
        if self.follow and self.adapters:
            raise InputError("follow with adapters: they belong to one base; leave one of the two keys")
        self.named_adapters()
        self.aliases()
        if self.max_replicas < self.min_replicas:
            raise InputError(f"max_replicas={self.max_replicas}: must be at least min_replicas={self.min_replicas}")
        if self.target_ongoing_requests > self.max_ongoing_requests:
            raise InputError(
                f"target_ongoing_requests={self.target_ongoing_requests}: must be at most "
                f"max_ongoing_requests={self.max_ongoing_requests}"
            )
        if self.admin_key_env and not self.api_key_env:
            raise InputError("admin_key_env without api_key_env: everybody could use the rest; set both")

    @property
    def max_body_bytes(self) -> int:
        return self.max_body_kb * 1024

    def named_adapters(self) -> dict[str, str]:
        """Return the folders of the adapters by their names.

        Raises:
            InputError: a part without name or folder, or a name twice.
        """
        pairs = _pairs("adapters", self.adapters, "FOLDER")
        names = [name for name, _ in pairs]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"adapters: two are called '{twice}'")
        return dict(pairs)

    def allowed_envs(self, own: str) -> list[str]:
        """Return the environments that sessions may name; ``own`` is the run's."""
        return _names(self.session_envs) or [own]

    def aliases(self) -> dict[str, str]:
        """Return the models by their other names, which are patterns.

        Raises:
            InputError: a part without name or model.
        """
        return dict(_pairs("model_aliases", self.model_aliases, "MODEL"))

    def allowed_options(self) -> list[str]:
        return _names(self.session_options)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _pairs(key: str, text: str, what: str) -> list[tuple[str, str]]:
    pairs = []
    for part in _names(text):
        name, _, value = part.partition("=")
        if not (name and value):
            raise InputError(f"{key}: '{part}' must be NAME={what}")
        pairs.append((name, value))
    return pairs


def _plain(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return parse_assignments([f"value={value}"])["value"]
    except InputError:
        return value
