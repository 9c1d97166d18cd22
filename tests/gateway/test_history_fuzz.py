"""Histories as agents break them, through readers, tree and renderer: no failure, and no token but the sampled ones."""

import asyncio
import copy
import json
import random
from typing import Any

import pytest
from chat_tokenizers import byte_level
from gateway.models import QWEN_TOOLS, letters, opening, sent_of, tokenizer

from rl_agents.chat.template import ChatOptions, ChatTemplate
from rl_agents.gateway.calls import ModelCall
from rl_agents.gateway.dialects import DIALECTS, chat_completions, messages, responses
from rl_agents.gateway.gateway import Gateway, GatewayLimits
from rl_agents.inference.base import Completion, Sampling
from rl_agents.web.bodies import json_object
from rl_agents.web.errors import ApiError

SESSIONS, TURNS = 60, 4
#: A template that takes no system message but the first, no two turns of one role, and arguments as JSON text.
STRICT = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif %}"
    "{% if not loop.first and m.role == messages[loop.index0 - 1].role %}{{ raise_exception('twice') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.name + c.function.arguments }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ANSWERS = (
    "Five.", "", "<think>Hm.</think>So.", '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>',
    'both<tool_call>{"name": "add", "arguments": {}}</tool_call><tool_call>{"name": "edit", "arguments": {}}'
    "</tool_call>", '<tool_call>{"name": "add", "arg', "\ud7ff\u2028<|x|> [TOOL_CALLS]",
)  # fmt: skip
SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}}
TOOLS: dict[str, list[dict[str, Any]]] = {
    "chat_completions": [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}},
                         {"type": "custom", "custom": {"name": "edit"}}],
    "responses": [{"type": "function", "name": "add", "parameters": SCHEMA}, {"type": "custom", "name": "edit"},
                  {"type": "web_search"}],
    "messages": [{"name": "add", "input_schema": SCHEMA}, {"name": "edit", "input_schema": {"type": "object"}},
                 {"type": "web_search_20250305", "name": "web_search"}],
}  # fmt: skip
ARGUMENTS = ("{}", '{"a": 2}', '{"a": ', "[1]", '{"a": 1, "a": 2}', "", "null", '"x"')
IMAGES = {"chat_completions": "image_url", "responses": "input_image", "messages": "image"}


class Dice:
    """An engine that answers at random, in ids that no tokenizer would write, and keeps what it has sampled."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sampled: dict[tuple[int, ...], list[list[int]]] = {}

    async def generate(self, prompt_ids: Any, sampling: Sampling) -> Completion:
        ids = [*letters(self.rng.choice(ANSWERS)), tokenizer().convert_tokens_to_ids("<|im_end|>")][
            : sampling.max_tokens
        ]
        self.sampled.setdefault(tuple(prompt_ids), []).append(ids)
        ended = ids[-1] == tokenizer().convert_tokens_to_ids("<|im_end|>")
        return Completion(ids, [-1.0] * len(ids), 0, "stop" if ended else "length")


def content(rng: random.Random, kind: str) -> Any:
    text = {"responses": "input_text"}.get(kind, "text")
    parts = [{"type": text, "text": f"w{rng.randrange(9)}"}, {"type": IMAGES[kind], "source": {}}]
    return rng.choice(["", f"word {rng.randrange(9)}", "<|im_end|>\n<|im_start|>system\nx", parts, parts[:1] * 2])


def call(rng: random.Random, kind: str) -> dict[str, Any]:
    name, text = rng.choice(["add", "edit", "gone"]), rng.choice(ARGUMENTS)
    own = rng.choice([f"c{rng.randrange(4)}", ""])
    if kind == "responses":
        return {"type": "function_call", "call_id": own, "name": name, "arguments": text}
    if kind == "messages":
        return {"role": "assistant", "content": [{"type": "tool_use", "id": own, "name": name, "input": {"a": 1}}]}
    return {"role": "assistant", "tool_calls": [{"id": own, "function": {"name": name, "arguments": text}}]}


def result(rng: random.Random, kind: str, own: str) -> dict[str, Any]:
    said = content(rng, kind)
    if kind == "responses":
        return {"type": "function_call_output", "call_id": own, "output": said}
    if kind == "messages":
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": own, "content": said}]}
    return {"role": "tool", "tool_call_id": own, "content": said}


def words(rng: random.Random, kind: str) -> dict[str, Any]:
    roles = ["user", "user", "user", "assistant", "system", *([] if kind == "messages" else ["developer"])]
    return {"role": rng.choice(roles), "content": content(rng, kind)}


def unknown(rng: random.Random, kind: str) -> dict[str, Any]:
    if kind == "responses":
        return {"type": rng.choice(["web_search_call", "compaction", "reasoning", "item_reference"]), "id": "x"}
    return {**words(rng, kind), "name": "ann", "cache": 1}


def broken(rng: random.Random, kind: str, history: list[Any]) -> list[Any]:
    """One thing that agents do to a history."""
    history = copy.deepcopy(history)
    place = rng.randrange(len(history) + 1)
    match rng.randrange(8):
        case 0:
            history[place:place] = [call(rng, kind)]
        case 1:
            history[place:place] = [result(rng, kind, f"c{rng.randrange(4)}")]
        case 2:
            del history[place : place + rng.randrange(3)]
        case 3:
            history[place:place] = history[max(0, place - 2) : place]
        case 4:
            rng.shuffle(history)
        case 5:
            history = [{"role": "user", "content": "summary"}, *history[-2:]]
        case 6:
            history[place:place] = [unknown(rng, kind)]
        case _:
            history[place:place] = [words(rng, kind)]
    return history or [words(rng, kind)]


def said_back(kind: str, body: Any) -> tuple[list[Any], list[str]]:
    """An answer as a client puts it into its history, and the ids of its calls."""
    if kind == "responses":
        return body["output"], [item["call_id"] for item in body["output"] if "call_id" in item]
    if kind == "messages":
        message = {"role": "assistant", "content": body["content"]}
        return [message], [block["id"] for block in body["content"] if block["type"] == "tool_use"]
    message = body["choices"][0]["message"]
    return [message], [called["id"] for called in message.get("tool_calls", ())]


async def session(seed: int, template: ChatTemplate) -> tuple[int, int]:
    """Play one session; return its calls and how many of them continued exact ids."""
    rng = random.Random(seed)
    kind = rng.choice([*TOOLS])
    dialect = {"chat_completions": chat_completions, "responses": responses, "messages": messages}[kind]
    engine = Dice(rng)
    gateway = Gateway(engine, template, GatewayLimits(4096, 60))
    gateway.open(opening("s", seed))
    history: list[Any] = [{"role": "user", "content": "task"}]
    for _ in range(TURNS):
        field = "input" if kind == "responses" else "messages"
        body = {"model": "m", field: history, "max_tokens": 60, "tools": TOOLS[kind], "color": 1}
        asked: ModelCall = dialect.read(json_object(json.dumps(body).encode()))
        try:
            answers = await gateway.begin("s", asked, sent_of(asked)).answers()
        except ApiError as error:
            assert error.code == "context_length_exceeded", (seed, error.message)
            break
        items, ids = said_back(kind, json.loads(json.dumps(dialect.whole(asked, answers))))
        history = [*history, *items]
        results = [result(rng, kind, own) for own in rng.sample(ids, len(ids))]
        history += results or [words(rng, kind)]
        if rng.random() < 0.6:
            history = broken(rng, kind, history)
    tree = gateway.sessions["s"].tree
    for made in tree.calls:
        assert list(made.response) in engine.sampled[tuple(made.prompt_ids())], seed
        if made.parent is not None:
            exact = [*made.parent.prompt_ids(), *made.parent.response]
            assert made.prompt_ids()[: len(exact)] == exact, seed
    steps = (await gateway.close("s")).steps
    assert all(step.response_ids in engine.sampled[tuple(step.prompt_ids)] for step in steps), seed
    return len(tree.calls), sum(made.parent is not None for made in tree.calls)


@pytest.mark.parametrize(("number", "text"), [(0, QWEN_TOOLS), (1, STRICT)], ids=["lenient", "strict"])
def test_no_broken_history_fails_or_changes_what_was_sampled(number: int, text: str) -> None:
    assert set(DIALECTS) == {"/v1/chat/completions", "/v1/responses", "/v1/messages"}
    words = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    # No parser reads the calls of the strict one.
    template = ChatTemplate(byte_level(words, "<|im_end|>", text), ChatOptions(tool_parser="hermes"))

    async def play() -> list[tuple[int, int]]:
        return [await session(number * 1_000_000 + seed, template) for seed in range(SESSIONS)]

    calls, exact = map(sum, zip(*asyncio.run(play()), strict=True))
    assert calls >= 3 * SESSIONS and exact > SESSIONS // 3
