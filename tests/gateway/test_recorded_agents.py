"""Claude Code 2.1.197, Codex 0.169.0 and agent frameworks as shipped: their recorded requests through the gateway.

The recordings are what the released commands sent, with texts, tools and ids shortened. The sampled answers are those
that the recorded histories hold.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from gateway.models import letters, opening, sent_of, tokenizer

from rl_agents.chat.template import ChatTemplate
from rl_agents.gateway.calls import ModelCall
from rl_agents.gateway.conversation_tree import RecordedCall
from rl_agents.gateway.dialects import DIALECTS
from rl_agents.gateway.gateway import Gateway, GatewayLimits
from rl_agents.inference.base import Completion

RECORDED = Path(__file__).parent / "agents"


def called(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


READ, COUNT = (
    called("Read", file_path="/repo/words.txt"),
    called("Bash", command="wc -w words.txt", description="count"),
)
CHECK = called("Agent", description="check", prompt="SUBAGENT check words.txt", subagent_type="general-purpose")
CLAUDE = [
    "Let me look." + called("Bash", command="ls", description="list"), f"<think>Both.</think>{READ}{COUNT}",
    f"I ask an agent.{CHECK}", "The file is fine.", "Done.",
]  # fmt: skip
CODEX = [
    "Let me look." + called("exec_command", cmd="ls") + called("exec_command", cmd="wc -w words.txt"),
    "<think>Again.</think>" + called("shell", command=["ls"]), "Three words.",
    called("apply_patch", input="*** Begin Patch"),
]  # fmt: skip


def requests(name: str) -> list[tuple[Any, dict[str, Any]]]:
    sent = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    return [(DIALECTS[item["path"]], item["body"]) for item in sent]


class Recorded:
    """An engine that answers as was recorded, in ids that no tokenizer would write."""

    def __init__(self, answers: list[str]) -> None:
        self.answers = list(answers)
        self.sampled: list[tuple[list[int], list[int]]] = []

    async def generate(self, prompt_ids: Any, sampling: Any) -> Completion:
        ids = [*letters(self.answers.pop(0)), tokenizer().convert_tokens_to_ids("<|im_end|>")]
        self.sampled.append((list(prompt_ids), ids))
        return Completion(ids, [-1.0] * len(ids), 0, "stop")


async def played(
    name: str, answers: list[str], sent: list[tuple[Any, dict[str, Any]]] | None = None
) -> tuple[list[RecordedCall], Recorded, list[Any], dict[str, int]]:
    engine = Recorded(answers)
    gateway = Gateway(engine, ChatTemplate(tokenizer()), GatewayLimits(200_000, 1000))
    gateway.open(opening("s"))
    bodies = []
    for dialect, body in sent or requests(name):
        call: ModelCall = dialect.read(body)
        bodies.append(dialect.whole(call, await gateway.begin("s", call, sent_of(call)).answers()))
    calls = list(gateway.sessions["s"].tree.calls)
    return calls, engine, bodies, (await gateway.close("s")).ignored


def check_exact(calls: list[RecordedCall], engine: Recorded) -> None:
    """Every prompt and response is what the engine saw; a continuing prompt begins with its parent's exact ids."""
    for made, (prompt, response) in zip(calls, engine.sampled, strict=True):
        assert made.prompt_ids() == prompt and list(made.response) == response
        if made.parent is not None:
            exact = [*made.parent.prompt_ids(), *made.parent.response]
            assert prompt[: len(exact)] == exact


def test_claude_code_continues_exact_ids_and_its_subagent_is_a_branch() -> None:
    calls, engine, _, ignored = asyncio.run(played("claude_code", CLAUDE))
    check_exact(calls, engine)
    assert [made.edge for made in calls] == ["root", "continue", "continue", "root", "continue"]
    assert [calls.index(made.parent) if made.parent else None for made in calls] == [None, 0, 1, None, 2]
    assert calls[3].read_by is calls[4]  # the main agent reads what its subagent said
    assert ignored == {"system.billing_header": 1}


def test_codex_continues_exact_ids_with_parallel_calls_and_its_tools_keep_their_forms() -> None:
    calls, engine, bodies, ignored = asyncio.run(played("codex", CODEX))
    check_exact(calls, engine)
    assert [made.edge for made in calls[:3]] == ["root", "continue", "continue"]
    assert "multi_agent_v1.spawn_agent" in [tool.name for tool in calls[0].tools]
    (patch,) = bodies[3]["output"]
    assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "apply_patch", "*** Begin Patch")
    assert ignored == {"tools.tool_search": 1, "tools.web_search": 1}


@pytest.mark.parametrize(("name", "messages"), [("claude_code", "messages"), ("codex", "input")])
def test_a_compacted_history_is_a_branch_that_read_the_summary(name: str, messages: str) -> None:
    """The commands ask for a summary at the end of the history, and begin again from it (`/compact`)."""
    *sent, (dialect, last) = requests(name)[:3]
    kind = "text" if name == "claude_code" else "input_text"
    said = "The file words.txt has three words, and nothing is left to do."

    def user(text: str) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": kind, "text": text}]}

    asked = {**last, messages: [*last[messages], user("Write a summary of this conversation for your successor.")]}
    head = [item for item in last[messages][:4] if item.get("role") in ("user", "developer", "system")]
    summary = user(f"This session is continued from an earlier one. Its summary:\n{said}\nGo on.")
    begun = {**last, messages: [*head, summary]}
    answers = [*(CLAUDE if name == "claude_code" else CODEX)[:2], said, "Done."]
    calls, engine, _, _ = asyncio.run(played(name, answers, [*sent, (dialect, asked), (dialect, begun)]))
    check_exact(calls, engine)
    assert [made.edge for made in calls] == ["root", "continue", "continue", "rewrite"]
    compacting, after = calls[2:]
    assert after.parent is None and after.after is compacting  # a prompt of its own, and what it does is credited on


#: What clients of all kinds sent, a call and its result; not those that name the response that they follow.
CLIENTS = [
    path for path in sorted((Path(__file__).parent / "dialects" / "fixtures").glob("*.json"))
    if '"previous_response_id": "' not in path.read_text(encoding="utf-8")
]  # fmt: skip
#: smolagents tells calls and results in words of its own, and AutoGen offers no tools when it reflects on a result.
REWRITING = {"smolagents_tools", "smolagents_tools_streamed", "smolagents_code", "autogen", "autogen_streamed"}

#: Beginnings of the names of clients that send thoughts back.
THOUGHTFUL = ("ag2_responses", "anthropic", "langgraph_responses", "openai", "pydantic_ai")


@pytest.mark.parametrize("path", CLIENTS, ids=lambda path: path.stem)
def test_a_tool_turn_of_every_client_continues_the_exact_ids(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "secret" not in text and "127.0.0.1" not in text
    sent = [(DIALECTS[item["path"]], item["body"]) for item in json.loads(text)]
    answers = ["<think>Two and three are small.</think>Let me add." + called("add", a=2, b=3), "The sum is 5."]
    calls, engine, _, ignored = asyncio.run(played("", answers, sent))
    assert [made.edge for made in calls] == ["root", "rewrite" if path.stem in REWRITING else "continue"]
    check_exact(calls, engine)
    # Nothing unknown but autogen's names of speakers: what else a new release sends should be looked at.
    assert set(ignored) <= {"messages.name"}
    first, second = (dialect.read(body) for dialect, body in sent)
    assert "What is 2 + 3?" in first.messages[-1]["content"] and first.stream == path.stem.endswith("_streamed")
    told = [message["content"] for message in second.messages if message["role"] == "tool"]
    assert told == ["5"] or path.stem.startswith("smolagents_")
    (said,) = (message for message in second.messages if message["role"] == "assistant")
    remembered = path.stem.startswith(THOUGHTFUL) and not path.stem.startswith("openai_agents_chat")
    assert said.get("reasoning_content", "").strip() == ("Two and three are small." if remembered else "")
