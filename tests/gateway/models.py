"""A tiny real model that reads a chat template with tools, and what tests of the gateway share."""

import asyncio
import concurrent.futures
import hashlib
import json
from functools import cache
from typing import Any

import torch
from chat_tokenizers import byte_level
from tiny_models import tiny_qwen

from rl_agents.chat.messages import read_message
from rl_agents.chat.template import ChatTemplate
from rl_agents.gateway.calls import ModelCall, RequestIdentity
from rl_agents.gateway.gateway import Gateway, GatewayLimits
from rl_agents.inference.base import Completion, EngineError
from rl_agents.inference.torch_engine import TorchEngine
from rl_agents.store.records import SessionStart
from rl_agents.tools.calls import Tool

# Qwen 2.5: tool results are users' turns, several in a row are one turn; calls are written as <tool_call>.
QWEN_TOOLS = (
    "{% if tools %}<|im_start|>system\n{{ messages[0].content if messages[0].role == 'system' else 'tools' }}\n"
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n"
    "{% elif messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}"
    "{% if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "{{ '\n<tool_response>\n' }}{{ m.content }}{{ '\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% elif m.role == 'assistant' %}<|im_start|>assistant\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n"
    "{% elif not (m.role == 'system' and loop.first) %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
ADD = Tool("add", "adds", {"type": "object", "properties": {"a": {"type": "number"}}})
MAX_LEN = 1200


@cache
def tokenizer() -> Any:
    return byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], "<|im_end|>", QWEN_TOOLS)


def tiny_model(seed: int = 0) -> Any:
    return tiny_qwen(len(tokenizer()), seed, max_position_embeddings=4096)


class Scripted(TorchEngine):
    """A real engine whose answers to some prompts are given: those whose text ends with a key.

    The ids given are letters, one token each: no tokenizer would write the same text like that.
    """

    def __init__(self, script: dict[str, str] | None = None, **options: Any) -> None:
        super().__init__(tiny_model(), max_model_len=MAX_LEN, **options)
        self.script = script or {}
        self.seen: list[tuple[list[int], int]] = []
        self.gate: asyncio.Event | None = None
        self.failures = 0

    async def generate(self, prompt_ids, sampling, on_tokens=None):
        self.seen.append((list(prompt_ids), sampling.seed))
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise EngineError("engine 0 died")
        text = tokenizer().decode(prompt_ids)
        said = next((said for key, said in self.script.items() if key in last_turn(text)), None)
        if said is None:
            return await super().generate(prompt_ids, sampling, on_tokens)
        ids = [*letters(said), tokenizer().convert_tokens_to_ids("<|im_end|>")][: sampling.max_tokens]
        return self.scored(prompt_ids, ids, on_tokens)

    @torch.inference_mode()
    def scored(self, prompt_ids, ids, on_tokens):
        tokens = torch.tensor([[*prompt_ids, *ids]])
        logits = self.model(tokens).logits[0, len(prompt_ids) - 1 : -1]
        logprobs = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()
        if on_tokens is not None:
            for number, (token, logprob) in enumerate(zip(ids, logprobs, strict=True), 1):
                if on_tokens([token], [logprob]):
                    ids, logprobs = ids[:number], logprobs[:number]
                    break
        self.sampled_tokens += len(ids)
        ended = ids[-1] == tokenizer().convert_tokens_to_ids("<|im_end|>")
        return Completion(ids, logprobs, self.version, "stop" if ended else "length")


def last_turn(text: str) -> str:
    return text.rsplit("<|im_end|>", 1)[0].rsplit("<|im_start|>", 1)[-1]


def letters(text: str) -> list[int]:
    return [token for letter in text for token in tokenizer().encode(letter, add_special_tokens=False)]


class MemoryPool:
    """A sink that keeps records in a list."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def add(self, *records: Any) -> concurrent.futures.Future[None]:
        self.records += records
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        done.set_result(None)
        return done

    def of(self, kind: type) -> list[Any]:
        return [record for record in self.records if isinstance(record, kind)]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def result(call: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": text}


def reply(answer: Any, **changes: Any) -> dict[str, Any]:
    """An answer as a client sends it back."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.content or None}
    if answer.thoughts:
        message["reasoning_content"] = answer.thoughts
    if answer.tool_calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in answer.tool_calls
        ]
    return message | changes


def model_call(*messages: dict[str, Any], **options: Any) -> ModelCall:
    return ModelCall("chat_completions", "any", tuple(read_message(m) for m in messages), **options)


def sent_of(call: ModelCall, retry: int = 0) -> RequestIdentity:
    body = [call.dialect, call.previous, [dict(m) for m in call.messages], call.count, call.max_tokens]
    return RequestIdentity(hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest(), retry)


class Rig:
    """A gateway with one open session; `ask` is what a client's call is."""

    def __init__(
        self, script: dict[str, str] | None = None, pool: Any = None, seed: int = 7, session: str = "s", **limits: Any
    ) -> None:
        self.engine = Scripted(script)
        self.template = ChatTemplate(tokenizer())
        given = {"max_model_len": MAX_LEN, "max_response_tokens": 12} | limits
        self.gateway = Gateway(self.engine, self.template, GatewayLimits(**given), pool)
        self.key = self.gateway.open(opening(session, seed)) if session else ""

    async def ask(self, *messages: dict[str, Any], retry: int = 0, session: str = "s", **options: Any) -> Any:
        answers = await self.all(*messages, retry=retry, session=session, **options)
        return answers[0]

    async def all(self, *messages: dict[str, Any], retry: int = 0, session: str = "s", **options: Any) -> Any:
        call = model_call(*messages, **options)
        return await self.gateway.begin(session, call, sent_of(call, retry)).answers()

    async def trace(self) -> Any:
        return await self.gateway.close("s")

    def text(self, ids: list[int]) -> str:
        return str(tokenizer().decode(ids))


def status_of(path: str, response: Any) -> int:
    """Check that a refusal has its dialect's form; return its status."""
    body = response.json()
    if path == MESSAGES:
        assert body["type"] == "error" and set(body["error"]) == {"type", "message"}
    else:
        assert set(body["error"]) == {"message", "type", "param", "code"}
    assert "\n" not in body["error"]["message"]
    return int(response.status_code)


def opening(session: str, seed: int = 7) -> SessionStart:
    return SessionStart(session, group_id=0, member=0, seed=seed, task_id="t")
