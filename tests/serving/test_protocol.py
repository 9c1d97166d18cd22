"""What a request may say, and the one sentence that answers a wrong one."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from rl_agents.config.options import keys_of
from rl_agents.errors import InputError
from rl_agents.gateway.calls import ModelCall
from rl_agents.gateway.dialects import chat_completions
from rl_agents.inference.base import Extras, Sampling
from rl_agents.serving.options import ServingOptions
from rl_agents.serving.request_params import of_choice, read_params
from rl_agents.tools.structured_output import Structure
from rl_agents.web.bodies import json_object
from rl_agents.web.security import Keys, check_address, digest

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


#: What a request without parameters gets.
PLAIN = Sampling(0, extras=Extras()), None


def read(body: bytes) -> tuple[ModelCall, Sampling, Structure | None]:
    return read_params(chat_completions.read(json_object(body)))


def test_what_clients_send_by_habit_asks_for_nothing() -> None:
    habits = {"presence_penalty": 0.0, "frequency_penalty": 0, "logit_bias": {}, "parallel_tool_calls": True}
    _, *params = read(json.dumps({**CHAT, **habits, "user": "me", "tools": [TOOL]}).encode())
    assert tuple(params) == PLAIN and of_choice(PLAIN[0], 5, (1,), 0) == Sampling(5, stop_token_ids=(1,))
    without, *_ = read(json.dumps({**CHAT, "tools": [TOOL], "tool_choice": "none"}).encode())
    assert without.tools == ()


def test_half_a_character_and_a_key_that_is_repeated_are_read() -> None:
    assert json_object(b'{"a": "x\\ud83d", "b": 1, "b": 2}') == {"a": "x?", "b": 2}


def test_every_wish_reaches_the_engine() -> None:
    fields = {
        "temperature": 0.5, "top_p": 0.9, "seed": 7, "top_k": 5, "min_p": 0.1, "presence_penalty": 0.5,
        "frequency_penalty": -0.5, "repetition_penalty": 1.2, "logit_bias": {"3": -100}, "logprobs": True,
        "top_logprobs": 4, "metadata": {"a": "b"}, "user": "me",
    }  # fmt: skip
    call, sampling, _ = read(json.dumps({**CHAT, **fields}).encode())
    first, second = (of_choice(sampling, 5, (1,), index) for index in range(2))
    extras = Extras("", 4, 5, 0.1, 0.5, -0.5, 1.2, ((3, -100.0),))
    assert first == Sampling(5, 0.5, 0.9, (1,), 7, extras) and call.logprobs == 4
    assert second.seed not in (7, None) and second.extras == extras
    assert pickle.loads(pickle.dumps(first)) == first and pickle.loads(pickle.dumps(Sampling(5))) == Sampling(5)


def test_keys_are_read_as_text_and_as_values_and_the_rest_belongs_to_the_run() -> None:
    given = {"checkpoint": "x", "max_replicas": "3", "follow": "true", "drain_s": 2}
    options, rest = ServingOptions.read({**given, "max_model_len": "64", "env.a": "b"})
    assert (options.max_replicas, options.follow, options.drain_s) == (3, True, 2.0)
    assert rest == {"max_model_len": 64, "env.a": "b"}


def test_a_server_that_others_can_reach_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    open_server = ServingOptions(checkpoint="x")
    for host in ("127.0.0.1", "localhost", "::1", "127.8.0.1"):
        check_address(host, bool(open_server.api_key_env))
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
        with pytest.raises(InputError, match="--api-key-env"):
            check_address(host, bool(open_server.api_key_env))
    locked = ServingOptions(checkpoint="x", api_key_env="A_KEY")
    check_address("0.0.0.0", bool(locked.api_key_env))
    with pytest.raises(InputError, match="A_KEY is not set"):
        Keys.from_environment(locked.api_key_env, locked.admin_key_env)
    monkeypatch.setenv("A_KEY", "short")
    with pytest.raises(InputError, match="A_KEY has 5 characters"):
        Keys.from_environment(locked.api_key_env, locked.admin_key_env)
    monkeypatch.setenv("A_KEY", "k" * 32)
    assert Keys.from_environment(locked.api_key_env, locked.admin_key_env).api == digest("k" * 32) != "k" * 32


def test_the_guide_names_every_key_of_a_server() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")
    assert [name for name in keys_of(ServingOptions) if f"`{name}`" not in guide] == []
