"""Contexts: the policy's prompt at each step, as exact token ids.

``append`` keeps the whole dialogue: the next prompt is the last prompt, the sampled ids, and the text that the chat
template renders between two turns. Sampled ids are never decoded and tokenized again, so the prompts of an episode
extend each other exactly. ``window(n)`` builds a short prompt at every step, as in the ALFWorld and WebShop papers.
``summary(n)`` appends until a prompt has more than n tokens; then the policy's own summary replaces the dialogue.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from rl_agents.chat.history import SystemPlaces, plain_turns, system_moved, with_short_ids, with_text_arguments
from rl_agents.chat.tool_parsing import ResponseParser, make_parser, offered_tools, refusal
from rl_agents.config import context_window, summary_limit
from rl_agents.durable import read_json
from rl_agents.errors import InputError
from rl_agents.startup import leave_out_sklearn

History = tuple[tuple[str, str], ...]
"""(observation, action) pairs of an episode, oldest first."""

RenderWindow = Callable[[str, History, str], str]
"""``render_window(task, history, observation)``: the user message of a window; ``history`` is already cut to n."""

# A placeholder for an assistant's answer, to find the text around it. No spaces, since templates may trim.
SENTINEL = "rl-agents-assistant-turn"
WRITES_NO_TOOLS = (
    "the chat template omits the tool definitions: add them to the model folder's chat_template.jinja, as the "
    "templates of Qwen2.5 do ({% if tools %} ... {% endif %})"
)
WORDS_ONLY = "its words are those of an environment without tools: use a pretrained model (docs/reference/models.md)"
CACHED_TURNS = 1024
#: Fewer, since chats may be long; the members of a group use theirs at the same time.
CACHED_CHATS = 128
#: Longer texts are not cached, which limits the memory of the caches.
CACHED_CHARACTERS = 1 << 15
#: Tokenizers need hundreds of bytes per token. Texts with more than this many characters per token of the limit are
#: first counted in pieces of `PIECE` characters; each cut may add some tokens.
CHARACTERS_PER_TOKEN, PIECE, CUT_TOKENS = 4, 1 << 16, 8
#: A private-use character. While the template renders messages, it is inserted into special tokens that they spell. If
#: it already occurs in the text, it is doubled.
GUARD = "\uf8f4"
_GUARDS = re.compile(f"{GUARD}({GUARD}?)")
#: Asks for the summary of ``summary(n)``.
SUMMARY_REQUEST = (
    "The context is full. Write a summary of everything above that you need to continue: what you have done and "
    "learned so far, and what remains to be done. Only the task and this summary will be kept. Do not act now."
)
#: Special tokens that end a turn with calls, if another one ends a turn of text (gpt-oss, Gemma 4, GLM).
CALL_ENDS = ("<|call|>", "<|tool_response>", "<|observation|>")


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The dialogue of an episode so far. Immutable, so that branches can share it.

    Attributes:
        read_ids: last prompt and the ids sampled after it; empty before the first step.
        chat: the beginning of the dialogue, if it is more than one user message; see `chat_text`.
        further: the messages after the last response, if they are more than the observation as one user message; see
            `further_text`.
        summary: the policy's summary of the turns between the task and the observation; None: they are all there.
    """

    task: str
    observation: str
    history: History = ()
    read_ids: tuple[int, ...] = ()
    chat: str = ""
    further: str = ""
    summary: str | None = None

    @classmethod
    def start(cls, observation: str, chat: str = "") -> Dialogue:
        return cls(task=observation, observation=observation, chat=chat)

    def after(
        self, prompt_ids: Sequence[int], response_ids: Sequence[int], action: str, observation: str, further: str = ""
    ) -> Dialogue:
        history = (*self.history, (self.observation, action))
        return Dialogue(self.task, observation, history, (*prompt_ids, *response_ids), self.chat, further)

    def summarized(self, summary: str) -> Dialogue:
        """Return the dialogue in which a summary replaces all earlier turns; the observation follows it as text."""
        return replace(self, read_ids=(), further="", summary=summary)


def chat_text(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return chat messages and tool definitions as one JSON text, which is hashable and can be sent.

    Raises:
        TypeError, ValueError: a value is not JSON.
    """
    return json.dumps({"messages": list(messages), "tools": list(tools)}, ensure_ascii=False, allow_nan=False)


def further_text(messages: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the messages after a response, and the tool calls of that response, as one JSON text.

    Raises:
        TypeError, ValueError: a value is not JSON.
    """
    return json.dumps({"messages": list(messages), "calls": list(calls)}, ensure_ascii=False, allow_nan=False)


def instructed(further: str, instruction: str) -> str:
    """Return the text of `further_text` or `chat_text` with an instruction at the end of the last message."""
    data = json.loads(further)
    last = data["messages"][-1]
    data["messages"][-1] = {**last, "content": f"{last['content']}\n{instruction}".strip()}
    return json.dumps(data, ensure_ascii=False, allow_nan=False)


def with_hint(dialogue: Dialogue, hint: str) -> Dialogue:
    """Return the dialogue with a hint at the end of what is read next."""
    observation, first = f"{dialogue.observation}\n{hint}", not dialogue.history
    return replace(
        dialogue,
        observation=observation,
        task=observation if first else dialogue.task,
        chat=instructed(dialogue.chat, hint) if first and dialogue.chat else dialogue.chat,
        further=instructed(dialogue.further, hint) if dialogue.further else "",
    )


@dataclass(frozen=True)
class ChatOptions:
    """A run's options for chats.

    Attributes:
        tool_parser, reasoning_parser: see `rl_agents.chat.tool_parsing`; empty: detected.
        date: ISO; the date that templates render. Empty: today.
    """

    tool_parser: str = ""
    reasoning_parser: str = ""
    date: str = ""

    @classmethod
    def from_settings(cls, settings: Any) -> ChatOptions:
        return cls(settings.tool_parser, settings.reasoning_parser, settings.template_date)


class ChatTemplate:
    """A tokenizer's chat template, split into the parts that a growing prompt needs.

    Text never becomes a control token: a special token spelled in a message, a tool result or a tool definition is
    encoded as its characters. Only the template writes special tokens.

    Attributes:
        end_of_turn: id that ends an assistant's turn.
        turn_ends: ids after which the next turn can follow.
        stop_token_ids: ids that end a response: ``end_of_turn``, the tokenizer's end of sequence, and those in the
            model's generation_config.json.
    """

    def __init__(self, tokenizer: Any, options: ChatOptions | None = None) -> None:
        """Find the end-of-turn token.

        Raises:
            InputError: the tokenizer has no chat template, no special token ends an assistant's turn, or prompts lack
                the beginning of an answer.
        """
        self.tokenizer = tokenizer
        self.options = options or ChatOptions()
        self.name = str(getattr(tokenizer, "name_or_path", "") or "tokenizer")
        if not getattr(tokenizer, "chat_template", None):
            raise InputError(f"{self.name}: the tokenizer has no chat template (chat_template.jinja)")
        added = {token: entry.content for token, entry in tokenizer.added_tokens_decoder.items() if entry.special}
        words = {**dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=False)), **added}
        #: Special tokens by their ids.
        self.special: dict[int, str] = {token: word for token, word in words.items() if word}
        self._spelled = _any_of([*self.special.values(), GUARD])
        self.end_of_turn = self._find_end_of_turn()
        self._check_generation_prompt()
        self.stop_token_ids, self.turn_ends = self._find_stops()
        # Tasks repeat within a group, and short observations repeat in all episodes.
        self.opening = _cached(self._opening, CACHED_TURNS)
        self.opening_chat = _cached(self._opening_chat, CACHED_CHATS)
        self.between = _cached(lambda text: self._between_ids([{"role": "user", "content": text}], []), CACHED_TURNS)
        self._plain = lru_cache(maxsize=CACHED_TURNS)(self._encode_plain)
        self._tools_of = lru_cache(maxsize=CACHED_CHATS)(lambda chat: offered_tools(json.loads(chat)["tools"]))
        self._renders_tools = False

    def exceeds(self, messages: Iterable[Mapping[str, Any]], limit: int) -> bool:
        """Return whether messages clearly have more than ``limit`` tokens, in memory independent of their length."""
        texts = [message["content"] or "" for message in messages]
        left = limit if sum(map(len, texts)) > CHARACTERS_PER_TOKEN * limit else math.inf
        for text in texts if left < math.inf else ():
            for start in range(0, len(text), PIECE):
                left -= max(0, len(self._encode(text[start : start + PIECE])) - CUT_TOKENS)
                if left < 0:
                    return True
        return False

    @cached_property
    def parser(self) -> ResponseParser:
        """The parser of the model's calls and thoughts.

        Raises:
            InputError: an unknown name in the options.
        """
        asked, prompt = self.options, self._render([{"role": "user", "content": SENTINEL}], generate=True)
        prefix = prompt.rpartition(SENTINEL)[2]
        return make_parser(self.tokenizer, self._render_call, asked.tool_parser, asked.reasoning_parser, prefix)

    @cached_property
    def _unread(self) -> frozenset[int]:
        return frozenset(token for token, word in self.special.items() if word not in self.parser.marks)

    def decode(self, response_ids: Sequence[int]) -> str:
        """Return a response as text, with its spaces, and without special tokens except those of calls and thoughts."""
        unread = self._unread
        text: str = self.tokenizer.decode(
            [token for token in response_ids if token not in unread],
            skip_special_tokens=False, clean_up_tokenization_spaces=False,
        )  # fmt: skip
        return text

    def action(self, response_ids: Sequence[int], chat: str = "") -> str:
        """Return a response in the form for environments, for any model family (`ResponseParser.action`).

        Args:
            chat: the beginning of the dialogue (`chat_text`), whose tools define the types of arguments.
        """
        text = self.decode(response_ids)
        return self.parser.action(text, self._tools_of(chat) if chat else None)

    def _opening(self, message: str) -> tuple[int, ...]:
        return tuple(self._encode(self._render([{"role": "user", "content": message}], generate=True)))

    def _opening_chat(self, chat: str) -> tuple[int, ...]:
        """Return the prompt of a `chat_text`; raises as `chat_ids` does."""
        data = json.loads(chat)
        return tuple(self.chat_ids(data["messages"], data["tools"]))

    def chat_ids(
        self, messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]] = (), repair: bool = False
    ) -> list[int]:
        """Return the prompt of a chat in OpenAI's format (arguments as objects), including the generation prompt.

        Args:
            repair: render a history that the template refuses as plain turns (`plain_turns`).

        Raises:
            InputError: the template cannot render these messages, or omits the tools.
        """
        try:
            text = self._render(messages, generate=True, tools=tools)
        except InputError:
            if not repair:
                raise
            messages = plain_turns(system_moved(messages, self.system_places))
            text = self._render(messages, generate=True, tools=tools)
        if tools and not self._renders_tools:
            if text == self._render(messages, generate=True):
                small = "model=WordLevel(" in str(getattr(self.tokenizer, "backend_tokenizer", ""))
                raise InputError(f"{self.name}: {WORDS_ONLY if small else WRITES_NO_TOOLS}")
            if not self.parser.tool_parser:
                raise InputError(refusal(self.name))
            self._renders_tools = True
        return self._encode(text)

    def answer_ids(self, text: str) -> list[int]:
        """Return the ids of an answer by another author, including the end of turn.

        Special tokens in it are text, except those of calls and thoughts.
        """
        return [*self._encode(self._guarded(text, self.parser.marks)), self.end_of_turn]

    def closing(self, last: int) -> tuple[int, ...]:
        """Return the end of turn if an answer was cut before it, else nothing."""
        return () if last in self.turn_ends else (self.end_of_turn,)

    def between_messages(
        self, further: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Return the ids between an answer's end of turn and the end of the next generation prompt.

        Args:
            further: messages after the answer, in the form of `rl_agents.chat.messages`. They are rendered together,
                since templates render several tool results as one turn.
            calls: the answer's tool calls (``id`` and ``function`` with ``name``), since some templates render the name
                of the tool with its result. Their arguments do not matter.

        Raises:
            InputError: the template cannot render these messages, or not separately from the answer.
        """
        if len(further) == 1 and further[0]["role"] == "user":
            return list(self.between(further[0]["content"]))
        named = [
            {"id": call["id"], "type": "function", "function": {"name": call["function"]["name"], "arguments": {}}}
            for call in calls
        ]
        messages = [dict(message) for message in further]
        try:
            return list(self._between_ids(messages, named))
        except InputError:
            if not named:
                raise
        # Some templates omit the text of an answer with calls, and so the sentinel.
        return list(self._between_ids(messages, []))

    def _between_ids(self, further: list[dict[str, Any]], calls: list[dict[str, Any]]) -> tuple[int, ...]:
        ids = self._encode(self._after_sentinel(further, calls))
        ends = [token for token in self.turn_ends if self.special.get(token) in CALL_ENDS] if calls else []
        place = min((ids.index(token) for token in ends if token in ids), default=-1)
        if place < 0 and self.end_of_turn not in ids:
            raise InputError(f"{self.name}: the chat template does not end the turn before these messages")
        return tuple(ids[(place if place >= 0 else ids.index(self.end_of_turn)) + 1 :])

    def _after_sentinel(
        self, further: list[dict[str, Any]], calls: Sequence[Mapping[str, Any]] = (), generate: bool = True
    ) -> str:
        """Render a dialogue and return the text after the sentinel answer, beginning with its end of turn."""
        answer = {"role": "assistant", "content": SENTINEL, **({"tool_calls": list(calls)} if calls else {})}
        turns: list[dict[str, Any]] = [{"role": "user", "content": "task"}, answer, *further]
        text = self._render(turns, generate)
        _, sentinel, rest = text.partition(SENTINEL)
        if not sentinel:
            raise InputError(f"{self.name}: the chat template omits the assistant's answer")
        return rest

    def _check_generation_prompt(self) -> None:
        """Refuse a template that ignores ``add_generation_prompt``, unless an answer follows a message directly."""
        asked: dict[str, Any] = {"role": "user", "content": "task"}
        prompt = self._render([asked], generate=True)
        answered = self._tried([asked, {"role": "assistant", "content": SENTINEL}])
        start = answered.partition(SENTINEL)[0].removeprefix(prompt)
        if prompt == self._tried([asked]) and answered.startswith(prompt) and SENTINEL in answered and start.strip():
            raise InputError(
                f"{self.name}: the chat template ignores add_generation_prompt, so prompts lack the beginning of an "
                f"answer: end it with {{% if add_generation_prompt %}}{{{{ {start!a} }}}}{{% endif %}}"
            )

    def _find_end_of_turn(self) -> int:
        closing = self._encode(self._after_sentinel([], generate=False))
        place = next((i for i, token in enumerate(closing) if token in self.special), -1)
        # Some templates end only the last turn with a token, which a growing dialogue would not contain.
        followed = self._encode(self._after_sentinel([{"role": "user", "content": "x"}]))
        if not closing and followed[0] in self.special:  # GLM: the mark of the next turn ends this one
            return int(followed[0])
        same = followed[: place + 1] == closing[: place + 1]
        # gpt-oss: the end of sequence ends the last turn, another token the turns before.
        if place < 0 or not (
            same or (closing[place] == self.tokenizer.eos_token_id and followed[place] in self.special)
        ):
            raise InputError(f"{self.name}: no special token ends every assistant's turn in the chat template")
        return int(followed[place])

    def _find_stops(self) -> tuple[tuple[int, ...], frozenset[int]]:
        eos, further = self.tokenizer.eos_token_id, getattr(self.tokenizer, "generation_stops", ())
        calls = [token for token, word in self.special.items() if word in CALL_ENDS]
        ends = [*([] if eos is None else [eos]), *further, *calls]
        # The token that ends only earlier turns (gpt-oss) also ends every message of an answer, such as its thoughts.
        last = self._encode(self._after_sentinel([], generate=False))
        turn = [self.end_of_turn] if self.end_of_turn in last or not last else []
        return tuple(dict.fromkeys([*turn, *ends])), frozenset([self.end_of_turn, *calls, *([] if turn else ends)])

    def _render_call(self, arguments: Any, name: str) -> str:
        """Render an assistant's turn with one call; see `rl_agents.chat.tool_parsing.Render`."""
        tool = {"type": "function", "function": {"name": name, "description": "", "parameters": {"type": "object"}}}
        return self._render(_one_call(arguments, name), generate=False, tools=[tool]).rpartition(SENTINEL)[2]

    @cached_property
    def arguments_as_text(self) -> bool:
        """Whether the template needs a call's arguments as JSON text: it renders objects as Python does, or fails."""
        result = {"role": "tool", "content": "result", "tool_call_id": "call00001", "name": "name"}
        probes = ({"probe": "value"}, '{"probe": "value"}')
        as_object, as_text = (self._tried([*_one_call(probe, "name"), result]) for probe in probes)
        return "probe" in as_text and ("'probe'" in as_object or "probe" not in as_object)

    @cached_property
    def system_places(self) -> SystemPlaces:
        """Where the template accepts system messages."""
        probe, asked = {"role": "system", "content": SENTINEL}, {"role": "user", "content": "task"}
        if SENTINEL in self._tried([asked, {"role": "assistant", "content": "answer"}, probe, asked]):
            return "anywhere"
        return "first" if SENTINEL in self._tried([probe, asked]) else "nowhere"

    def _tried(self, messages: list[dict[str, Any]]) -> str:
        with suppress(Exception):  # jinja and the template itself may raise anything
            return self._apply(messages, False, ())
        return ""

    def _render(self, messages: list[dict[str, Any]], generate: bool, tools: Sequence[Any] = ()) -> str:
        """Render messages with a `GUARD` inside the special tokens that they spell."""
        if any(message["role"] == "system" for message in messages):
            messages = system_moved(messages, self.system_places)
        if any("tool_calls" in message for message in messages) and self.arguments_as_text:
            messages = with_text_arguments(messages)
        messages, tools = self._guarded(messages), self._guarded(list(tools))
        try:
            return self._apply(messages, generate, tools)
        except Exception as error:  # jinja and the template itself may raise anything
            short = with_short_ids(messages)
            if short != messages:
                with suppress(Exception):
                    return self._apply(short, generate, tools)
            reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
            raise InputError(f"{self.name}: the chat template fails: {reason[0]}") from error

    def _apply(self, messages: list[dict[str, Any]], generate: bool, tools: Sequence[Any]) -> str:
        now = datetime.fromisoformat(self.options.date).strftime if self.options.date else None
        pinned = {"strftime_now": now, "date_string": now("%d %b %Y")} if now else {}
        text: str = self.tokenizer.apply_chat_template(
            messages, tools=list(tools) or None, tokenize=False, add_generation_prompt=generate, **pinned
        )
        return text

    def _guarded(self, value: Any, kept: frozenset[str] = frozenset()) -> Any:
        """Return text, or a JSON value, with a `GUARD` inside each special token except those in ``kept``."""
        if isinstance(value, str):
            return self._spelled.sub(lambda m: m[0] if m[0] in kept else m[0][0] + GUARD + m[0][1:], value)
        if isinstance(value, Mapping):
            return {self._guarded(name): self._guarded(item) for name, item in value.items()}
        return [self._guarded(item) for item in value] if isinstance(value, list | tuple) else value

    def _encode(self, text: str) -> list[int]:
        """Return ids; a special token with a `GUARD` inside is encoded as its characters."""
        if GUARD not in text:
            ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
            return ids
        first, *rest = _GUARDS.split(text)
        parts, guards, length = [first], [], len(first)
        for same, part in zip(rest[::2], rest[1::2], strict=True):
            guards += [] if same else [length]
            parts += [same, part]
            length += len(same) + len(part)
        clean = "".join(parts)
        found = self.tokenizer(clean, add_special_tokens=False, return_offsets_mapping=True)
        ids = []
        for token, (start, end) in zip(found["input_ids"], found["offset_mapping"], strict=True):
            spelled = token in self.special and bisect_right(guards, start) < bisect_left(guards, end)
            ids += self._plain(clean[start:end]) if spelled else [token]
        return ids

    def _encode_plain(self, text: str) -> list[int]:
        """Return the ids of a special token's characters."""
        # In parts that spell none, since the tokenizer's own switch would affect its users in other threads.
        parts = _GUARDS.split(self._guarded(text))
        ids = [token for part in parts for token in self.tokenizer.encode(part, add_special_tokens=False)]
        return [token for token in ids if token not in self.special]


def _one_call(arguments: Any, name: str) -> list[dict[str, Any]]:
    call = {"id": "call00001", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [{"role": "user", "content": SENTINEL}, {"role": "assistant", "content": "", "tool_calls": [call]}]


def _any_of(words: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern of words, the longest first; it compares two characters before it tries a word."""
    starts: dict[str, list[str]] = {}
    for word in sorted(words, key=len, reverse=True):
        starts.setdefault(word[:2], []).append(re.escape(word[2:]))
    ordered = sorted(starts.items(), key=lambda item: -len(item[0]))
    return re.compile("|".join(f"{re.escape(start)}(?:{'|'.join(rest)})" for start, rest in ordered))


def _cached(function: Callable[[str], tuple[int, ...]], size: int) -> Callable[[str], tuple[int, ...]]:
    cached = lru_cache(maxsize=size)(function)
    return lambda text: (cached if len(text) <= CACHED_CHARACTERS else function)(text)


@dataclass(frozen=True)
class ContextPolicy:
    """Builds prompts; has no state of an episode.

    Attributes:
        size: None: the dialogue grows, and every prompt begins with the previous prompt and the sampled ids. A number:
            one user message per step, with the task, the last ``size`` (observation, action) pairs and the observation.
        summarize_beyond: tokens of a prompt that the dialogue's summary replaces; None: no limit.
    """

    template: ChatTemplate
    size: int | None = None
    summarize_beyond: int | None = None

    def prompt(self, dialogue: Dialogue, render_window: RenderWindow | None = None) -> list[int]:
        """Return the next prompt; ``render_window`` is the environment's own format of a window, if any."""
        window = self.window(dialogue)
        if window is not None:
            text = window_message(dialogue, window[1]) if render_window is None else render_window(*window)
            return list(self.template.opening(text))
        if dialogue.read_ids:
            return self._extended(dialogue)
        template, more = self.template, summary_message(dialogue)
        if dialogue.chat:
            return list(template.opening_chat(instructed(dialogue.chat, more) if more else dialogue.chat))
        return list(template.opening(f"{dialogue.task}\n{more}" if more else dialogue.task))

    def summary_prompt(self, dialogue: Dialogue, prompt_ids: Sequence[int]) -> list[int]:
        """Return the prompt that asks for a summary, if ``prompt_ids`` is too long; else nothing.

        It ends before the observation, which is read after the summary, so that its length does not matter.
        """
        if self.summarize_beyond is None or len(prompt_ids) <= self.summarize_beyond or not dialogue.read_ids:
            return []
        return self._extended(replace(dialogue, observation=SUMMARY_REQUEST, further=""))

    def window(self, dialogue: Dialogue) -> tuple[str, History, str] | None:
        """Return the arguments with which `prompt` calls ``render_window``; None if it does not call it."""
        if self.size is None or (dialogue.chat and not dialogue.history):
            return None
        history = dialogue.history[max(0, len(dialogue.history) - self.size) :]
        return dialogue.task, history, dialogue.observation

    def _extended(self, dialogue: Dialogue) -> list[int]:
        """Return the read ids and the new messages; an answer that was cut at its budget gets the missing end."""
        closing = self.template.closing(dialogue.read_ids[-1])
        if not dialogue.further:
            return [*dialogue.read_ids, *closing, *self.template.between(dialogue.observation)]
        further = json.loads(dialogue.further)
        between = self.template.between_messages(further["messages"], further["calls"])
        return [*dialogue.read_ids, *closing, *between]


def window_message(dialogue: Dialogue, history: History) -> str:
    """Return the default window. The first observation is the task and is not repeated."""
    if not dialogue.history:
        return dialogue.task
    first = len(dialogue.history) - len(history)
    lines = [dialogue.task, ""]
    if history:
        lines.append(f"Steps taken so far: {len(dialogue.history)}. The last {len(history)}:")
    for number, (observation, action) in enumerate(history, start=first + 1):
        seen = [] if number == 1 else [f"[Observation {number}] {observation}"]
        lines += [*seen, f"[Action {number}] {action}"]
    lines += ["", f"[Current observation] {dialogue.observation}"]
    return "\n".join(lines)


def summary_message(dialogue: Dialogue) -> str:
    """Return what follows the task after a summary; empty if there is none."""
    if dialogue.summary is None:
        return ""
    return f"\n[Summary of the dialogue so far] {dialogue.summary}\n\n[Current observation] {dialogue.observation}"


def make_context(context: str, tokenizer: Any, options: ChatOptions | None = None) -> ContextPolicy:
    """Return the context of the key ``context``: ``append``, ``window(n)`` or ``summary(n)``.

    Raises:
        InputError: another name, or a tokenizer without chat template or end-of-turn token.
    """
    return ContextPolicy(ChatTemplate(tokenizer, options), context_window(context), summary_limit(context))


def load_tokenizer(model_dir: str | Path) -> Any:
    """Load the tokenizer of a local Hugging Face folder, without downloads and without running code of the folder.

    Raises:
        InputError: no such folder, or no tokenizer in it.
    """
    if not Path(model_dir).is_dir():
        raise InputError(f"{model_dir}: no such model folder")
    try:
        tokenizer = _tokenizer_loader(Path(model_dir)).from_pretrained(str(model_dir), local_files_only=True)
    except Exception as error:  # the loaders of the many formats raise many types
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"{model_dir}: no tokenizer that transformers can load: {reason}") from error
    tokenizer.generation_stops = _generation_stops(Path(model_dir))
    return tokenizer


def _generation_stops(folder: Path) -> tuple[int, ...]:
    """Return the end ids in the folder's generation_config.json; none if there is no such file.

    Raises:
        InputError: the file is not a JSON object.
    """
    path = folder / "generation_config.json"
    if not path.is_file():
        return ()
    found = read_json(path, dict).get("eos_token_id")
    ids = found if isinstance(found, list) else [found]
    return tuple(token for token in ids if isinstance(token, int))


def _tokenizer_loader(folder: Path) -> Any:
    """Return the class that loads a folder's tokenizer.

    transformers 5 loads every tokenizer of a Qwen2 model as Qwen2's, which splits words differently and drops unknown
    ones. So a folder that declares a plain tokenizer.json is loaded as such. The other loader also takes three seconds
    to import, in every env runner.
    """
    if _plain_tokenizer(folder):
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast
    leave_out_sklearn()
    from transformers import AutoTokenizer

    return AutoTokenizer


def _plain_tokenizer(folder: Path) -> bool:
    path = folder / "tokenizer_config.json"
    if not path.is_file() or not (folder / "tokenizer.json").is_file():
        return False
    return read_json(path, dict).get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast")
