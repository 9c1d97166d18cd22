"""What real clients sent in two turns with a tool: every body is read, and the history is still there."""

import json
from pathlib import Path

import pytest

from rl_agents.chat.messages import Message
from rl_agents.gateway.calls import ModelCall
from rl_agents.gateway.dialects import DIALECTS
from rl_agents.tools.calls import ToolCall, read_call

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.json"))
#: Clients that write calls and results as text of their own.
TEXTUAL = {"smolagents_code", "smolagents_tools", "smolagents_tools_streamed"}
#: Clients that do not send thoughts back.
FORGETFUL = {
    *("autogen", "autogen_streamed", "langgraph", "langgraph_streamed"),
    *("openai_agents_chat", "openai_agents_chat_streamed", *TEXTUAL),
    *("ag2", "ag2_streamed", "agent_framework", "agent_framework_streamed"),
    *("agno", "agno_responses", "agno_streamed", "haystack", "haystack_streamed"),
}
QUESTION = "What is 2 + 3? Use the tool add."


def turns(path: Path) -> list[ModelCall]:
    return [DIALECTS[sent["path"]].read(sent["body"]) for sent in json.loads(path.read_text(encoding="utf-8"))]


def of_role(call: ModelCall, role: str) -> list[Message]:
    return [message for message in call.messages if message["role"] == role]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_two_turns_are_read(path: Path) -> None:
    first, second = turns(path)
    assert QUESTION in first.messages[-1]["content"] and first.messages[0]["role"] == "system"
    assert first.stream == path.stem.endswith(("_streamed", "_followed")) == second.stream
    assert "add" in [tool.name for tool in first.tools] or path.stem == "smolagents_code"
    # Nothing unknown but autogen's names of speakers: what else a new release sends should be looked at.
    assert set(first.ignored | second.ignored) <= {"messages.name"}
    if not second.previous:
        assert second.messages[: len(first.messages)] == first.messages


@pytest.mark.parametrize("path", [path for path in FIXTURES if path.stem not in TEXTUAL], ids=lambda path: path.stem)
def test_the_call_and_its_result_come_back(path: Path) -> None:
    _, second = turns(path)
    assert [(message["tool_call_id"], message["content"]) for message in of_role(second, "tool")] == [("call_0", "5")]
    if second.previous:
        assert second.previous == "a1" and not of_role(second, "assistant")
        return
    (said,) = of_role(second, "assistant")
    assert said["content"] == ("" if path.stem == "agno_responses" else "Let me add.")  # it sends calls without words
    (called,) = said["tool_calls"]
    assert called["id"] == "call_0" and read_call(called) == ToolCall("add", {"a": 2, "b": 3})
    thoughts = None if path.stem in FORGETFUL else "Two and three are small."
    assert said.get("reasoning_content", "").strip() == (thoughts or "")
