"""An agent's requests as turns of a dialogue: what is new in each, whatever the client has done to its history."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_agents.chat.messages import Message
from rl_agents.gateway.calls import AnsweredCall, ModelAnswer, ModelCall
from rl_agents.gateway.conversation_tree import answer_keys, header_key, message_key, split_header
from rl_agents.gateway.stream_view import Shown, arguments_text
from rl_agents.tools.strict_json import canonical
from rl_agents.web.text import TextStream


@dataclass(frozen=True, slots=True)
class Turn:
    """What an agent's request shows of the world.

    Attributes:
        observation: as people read it, and as the policy does where it is one user message.
        anchor: equal for equal histories, thoughts excluded.
        messages, tools: with which a dialogue begins; empty for one user message.
        new_dialogue: the request does not continue from the last answer.
        further: messages since the last answer, where they are more than one user message.
        calls: the last answer's tool calls, for templates that write a tool's name next to its result.
    """

    observation: str
    anchor: str
    messages: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    new_dialogue: bool = False
    further: tuple[Message, ...] = ()
    calls: tuple[Mapping[str, Any], ...] = ()

    def info(self) -> dict[str, Any]:
        """Return what `reset` and `step` return in addition to the observation."""
        info: dict[str, Any] = {"anchor": self.anchor}
        if self.new_dialogue:
            info["new_dialogue"] = True
        if self.messages:
            info |= {"messages": list(self.messages), "tools": list(self.tools)}
        if self.further:
            info |= {"further_messages": list(self.further), "calls": list(self.calls)}
        return info


@dataclass
class History:
    """The last request and its answer.

    Attributes:
        as_sent: thoughts that the client drops from its history are dropped from the policy's.
        answered: number of answers.
    """

    as_sent: bool = False
    answered: int = 0
    _header: str = ""
    _keys: tuple[str, ...] = ()
    _answers: tuple[str, ...] = ()
    _calls: tuple[Mapping[str, Any], ...] = field(default=())

    def turn(self, call: ModelCall) -> Turn:
        """Take the next request."""
        system, body = split_header(call.messages)
        header, keys = header_key(system, call.tools), tuple(message_key(m, self.as_sent) for m in body)
        if call.previous:  # the client sends what is new, and no more
            header, keys, new = self._header, (*self._keys, *self._answers[:1], *keys), tuple(body)
        else:
            new = self._new(header, keys, body)
        turn = self._turn(call, new, _anchor(header, keys))
        self._header, self._keys = header, keys
        return turn

    def _new(self, header: str, keys: Sequence[str], body: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages since the last answer; none where the request does not go on from it."""
        known = len(self._keys)
        further = tuple(body[known + 1 :])
        if not (self.answered and further and header == self._header and keys[:known] == self._keys):
            return ()
        written = any(message["role"] == "assistant" for message in further)
        return () if written or keys[known] not in self._answers else further

    def _turn(self, call: ModelCall, new: tuple[Message, ...], anchor: str) -> Turn:
        if new:
            if len(new) == 1 and new[0]["role"] == "user":
                return Turn(str(new[0]["content"]), anchor)
            return Turn(_read(new), anchor, further=new, calls=self._calls)
        again = bool(self.answered)
        if len(call.messages) == 1 and call.messages[0]["role"] == "user" and not call.tools:
            return Turn(str(call.messages[0]["content"]), anchor, new_dialogue=again)
        tools = tuple(tool.to_openai() for tool in call.tools)
        return Turn(_read(call.messages[-1:]), anchor, tuple(call.messages), tools, new_dialogue=again)

    def answer(self, call: ModelCall, action: str) -> ModelAnswer:
        """Show the policy's whole response to the client as the gateway does; ids are the same in every replay."""
        shown = Shown(TextStream(lambda ids: action, call.stop), call.tools, inside=_inside(action))
        shown.add([0], last=True)
        self.answered += 1
        calls = tuple(
            AnsweredCall(f"call_{self.answered}_{number}", called.name, arguments_text(called))
            for number, called in enumerate(shown.calls)
        )
        self._answers = answer_keys(shown.content, shown.thoughts, shown.calls, action, self.as_sent)
        self._calls = tuple(
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": {}}} for c in calls
        )
        return ModelAnswer(
            index=0, call=self.answered, id=str(self.answered), content=shown.content, thoughts=shown.thoughts,
            tool_calls=calls, finish="tool_calls" if calls else "stop", prompt_tokens=0, completion_tokens=0,
            created=0, label="search",
        )  # fmt: skip


def _inside(action: str) -> bool:
    """Whether the prompt has opened the thought that the response ends."""
    opened, closed = action.find("<think>"), action.find("</think>")
    return closed >= 0 and not 0 <= opened < closed


def _anchor(header: str, keys: Sequence[str]) -> str:
    return hashlib.sha256(canonical([header, list(keys)]).encode("utf-8", "replace")).hexdigest()[:32]


def _read(messages: Sequence[Message]) -> str:
    return "\n".join(f"[{message['role']}] {_said(message)}" for message in messages)


def _said(message: Message) -> str:
    calls = "".join(f" {json.dumps(call['function'], ensure_ascii=False)}" for call in message.get("tool_calls", ()))
    return f"{message['content']}{calls}"
