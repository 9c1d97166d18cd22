"""The client's view of an answer while it is sampled: thoughts, text and, at the end, tool calls."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rl_agents.chat.messages import Message, assistant_message
from rl_agents.chat.template import ChatTemplate
from rl_agents.chat.tool_parsing import CANONICAL, ResponseParser
from rl_agents.gateway.calls import AnsweredCall, Delta, Dialect, Finish, ModelAnswer, Start, TokenLogprob
from rl_agents.inference.base import Likeliest
from rl_agents.tools.calls import Response, Tool, ToolCall
from rl_agents.tools.thoughts import THOUGHT_TAGS
from rl_agents.web.text import TextStream, beginning_of

#: Number of a prompt's last tokens that show whether the template has opened a thought.
TAIL = 16
#: A private-use character that marks a place of a text.
MARK = "\uf8f5"
#: Prefixes of answer ids in the dialects.
ANSWER_PREFIXES = ("chatcmpl-", "resp_", "msg_")
#: Prefixes of ids of tool calls, as in each provider's own API.
CALL_PREFIX: Mapping[Dialect, str] = {"chat_completions": "call_", "responses": "call_", "messages": "toolu_"}


@dataclass
class StreamView:
    """The view of one answer. `add` takes tokens; ``content``, ``thoughts`` and ``calls`` are complete at the end.

    If the answer or the prompt opens a thought, it ends at the first closing tag. With tools, text is shown only up to
    the first call, since a call can be recognized only at its end. The shown text is always a prefix of ``content``.
    For parsers that need a complete answer, nothing is shown before the end. A stop string ends the answer if it occurs
    after the thought, or anywhere if the model's thoughts are not separated.

    Attributes:
        stream: the text.
        tools: offered by the client.
        parser: of the model's family.
        inside: the prompt ends inside a thought.
        stop: the client's stop strings.
        stopped_by: the stop string that ended the answer; empty: none.
        tokens: number of tokens up to here, or up to the one that completed the stop string. The rest is no part of the
            answer.
        problem: why the answer's calls cannot be read; they are shown as text.
        thought_tokens: number of tokens inside a thought.
        token_text: id to text, if the client wants ``logprobs``.
    """

    stream: TextStream
    tools: Sequence[Tool]
    parser: ResponseParser = CANONICAL
    inside: bool = False
    stop: Sequence[str] = ()
    stopped_by: str = ""
    tokens: int = 0
    content: str = ""
    thoughts: str = ""
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""
    thought_tokens: int = 0
    token_text: Callable[[int], str] | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    _ends: list[int] = field(default_factory=list, repr=False)
    _spoken: str = field(default="", repr=False)
    _waiting: str = field(default="", repr=False)
    _state: str = "start"

    @classmethod
    def of(
        cls, template: ChatTemplate, prompt_ids: Sequence[int], stop: Sequence[str], tools: Sequence[Tool],
        logprobs: bool = False,
    ) -> StreamView:  # fmt: skip
        openings = [opening.strip() for opening, _ in template.parser.thought_tags]
        inside = _tail(template, prompt_ids).endswith(tuple(openings))
        text = (lambda token: str(template.tokenizer.decode([token]))) if logprobs else None
        return cls(TextStream(template.decode), tools, template.parser, inside, stop, token_text=text)

    def delta(
        self, index: int, token_ids: Sequence[int], logprobs: Sequence[float], likeliest: Sequence[Likeliest] = (),
        last: bool = False,
    ) -> Delta:  # fmt: skip
        """Add tokens of answer ``index`` with their scores and return what can be shown now; see `add`."""
        known = self.tokens
        content, thoughts = self.add(token_ids, last)
        if self.token_text is None:
            return Delta(index, content, thoughts)
        text, new = self.token_text, range(self.tokens - known)
        tops = [tuple((text(token), value) for token, value in top) for top in likeliest] or [()] * len(new)
        scored = tuple(TokenLogprob(text(token_ids[place]), logprobs[place], tops[place]) for place in new)
        self.logprobs = (*(self.logprobs or ()), *scored)[: self.tokens]
        return Delta(index, content, thoughts, scored)

    def add(self, token_ids: Sequence[int], last: bool = False) -> tuple[str, str]:
        """Add tokens and return the content and the thoughts that can be shown now; none after a stop string."""
        content, thoughts, number = "", "", 0
        # One by one, to count those inside a thought and those up to a stop string.
        while number < len(token_ids) - 1 and (self._state != "said" or self.stop):
            said, thought = self._add(token_ids[number : number + 1], False)
            content, thoughts, number = content + said, thoughts + thought, number + 1
        said, thought = self._add(token_ids[number:], last)
        return content + said, thoughts + thought

    def _add(self, token_ids: Sequence[int], last: bool) -> tuple[str, str]:
        if self.stopped_by:
            return "", ""
        self.tokens += len(token_ids)
        new = self.stream.add(token_ids, last)
        self._ends += [len(self.stream.text)] * bool(token_ids)
        self._waiting += new
        if self.parser.whole:
            self._cut_whole(new)
            return self._read_whole() if last or self.stopped_by else ("", "")
        if self._state == "start":
            self._begin(last)
        thoughts = self._think(last) if self._state == "thought" else ""
        content = self._say(last) if self._state == "said" else ""
        if thoughts or self._state == "thought":
            self.thought_tokens += len(token_ids)
        return content, thoughts

    def _cut_whole(self, new: str) -> None:
        """Cut the text at a stop string that ends in its ``new`` part, unless the parser finds it inside a thought."""
        for stop in self.stop if new else ():
            place = self._waiting.find(stop, max(0, len(self._waiting) - len(new) - len(stop) + 1))
            if place >= 0 and MARK not in self.parser.read(self._waiting[:place] + MARK, self.tools).thoughts:
                self._waiting, self.stopped_by = self._waiting[:place], stop
                return

    def _read_whole(self) -> tuple[str, str]:
        response = self.parser.read(self._waiting, self.tools)
        self.problem = response.problem
        self.calls = () if response.problem else response.calls
        self.content, self.thoughts = self._waiting if response.problem else response.content, response.thoughts
        return self.content, self.thoughts

    def _begin(self, last: bool) -> None:
        text = self._waiting.lstrip()
        openings = [opening for opening, _ in self.parser.thought_tags]
        tag = next((tag for tag in openings if text.startswith(tag)), "")
        if tag or self.inside:
            self._waiting = text[len(tag) :] if tag else self._waiting
            self._state = "thought"
        elif last or not any(tag.startswith(text) for tag in openings):
            self._state = "said"

    def _think(self, last: bool) -> str:
        closings = [closing for _, closing in self.parser.thought_tags]
        places = [(place, tag) for tag in closings if (place := self._waiting.find(tag)) >= 0]
        if places:
            place, tag = min(places)
            new, self._waiting, self._state = self._waiting[:place], self._waiting[place + len(tag) :], "said"
        else:
            held = 0 if last else beginning_of(self._waiting, closings)
            new, self._waiting = _cut(self._waiting, held)
        self.thoughts += new
        return new

    def _say(self, last: bool) -> str:
        self._spoken, self._waiting = self._spoken + self._waiting, ""
        places = [(place, stop) for stop in self.stop if (place := self._spoken.find(stop)) >= 0]
        if places:
            place, self.stopped_by = min(places)
            end = len(self.stream.text) - len(self._spoken) + place + len(self.stopped_by)
            self.tokens = bisect_left(self._ends, end) + 1  # spaces wait, since they may precede a thought
            self._spoken, last = self._spoken[:place], True
        text = self._spoken if last else _cut(self._spoken, beginning_of(self._spoken, self.stop))[0]
        whole = self._finished(text, last) if self.tools else text
        new = whole[len(self.content) :]
        self.content += new
        return new

    def _finished(self, text: str, last: bool) -> str:
        """Return the text without calls."""
        if not last:
            text = text.lstrip()
            if text.startswith("{"):
                return ""
            openings = [opening for opening in self.parser.call_openings if opening != "{"]
            text = text[: min((place for opening in openings if (place := text.find(opening)) >= 0), default=len(text))]
            return _cut(text, beginning_of(text, openings))[0].rstrip()
        response = self.parser.read(text, self.tools)
        self.problem = response.problem
        if response.problem or not response.calls:
            response = Response(text.strip())
        self.calls = response.calls
        return response.content if response.content.startswith(self.content) else self.content


def opened_thought(template: ChatTemplate, prompt_ids: Sequence[int]) -> str:
    """Return the tag of the thought that is open at the end of a prompt; empty: none."""
    tail = _tail(template, prompt_ids)
    return next((tag for tag in THOUGHT_TAGS if tail.endswith(f"<{tag}>")), "")


def _tail(template: ChatTemplate, prompt_ids: Sequence[int]) -> str:
    return str(template.tokenizer.decode(list(prompt_ids[-TAIL:]), skip_special_tokens=False)).rstrip()


def _cut(text: str, held: int) -> tuple[str, str]:
    return (text[:-held], text[-held:]) if held else (text, "")


def arguments_text(call: ToolCall) -> str:
    """Return a call's arguments as JSON text."""
    return json.dumps(dict(call.arguments), ensure_ascii=False)


def answer_id(call: int) -> str:
    """Return a call's id for clients, without the dialect's prefix."""
    return f"{call:016x}"


def call_of(answer: str | int) -> int:
    """Return the call of an answer's id (with a dialect's prefix) or of a call's number; 0: there is none."""
    if isinstance(answer, int):
        return answer
    digits = answer.removeprefix(next((p for p in ANSWER_PREFIXES if answer.startswith(p)), ""))
    try:
        return int(digits, 16) if len(digits) == 16 else int(digits)
    except ValueError:
        return 0


def written_answer(
    view: StreamView, dialect: Dialect, call: int, start: Start, finish_reason: str, index: int = 0
) -> ModelAnswer:
    """Return answer ``index`` to a request in the form for clients.

    Args:
        call: its number, for ids of tool calls.
        start: the beginning of its stream.
        finish_reason: of the engine, ``stop`` or ``length``.
    """
    calls = tuple(
        AnsweredCall(f"{CALL_PREFIX[dialect]}{call:016x}{number:02x}", called.name, arguments_text(called))
        for number, called in enumerate(view.calls)
    )
    finish: Finish = "tool_calls" if calls else "stop" if view.stopped_by or finish_reason == "stop" else "length"
    return ModelAnswer(
        index=index,
        call=call,
        id=start.id,
        content=view.content,
        thoughts=view.thoughts,
        tool_calls=calls,
        finish=finish,
        prompt_tokens=start.prompt_tokens,
        completion_tokens=view.tokens,
        created=start.created,
        label=start.label,
        stop=view.stopped_by,
        thought_tokens=view.thought_tokens,
        logprobs=view.logprobs,
    )


def client_message(answer: ModelAnswer, view: StreamView) -> Message:
    """Return an answer as the message that a client sends back."""
    return assistant_message(answer.content, view.calls, [call.id for call in answer.tool_calls], answer.thoughts)
