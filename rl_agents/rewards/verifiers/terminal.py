"""Terminal turns: the schema of the harness, the similarity of the commands, then a judge (Terminal-Bench)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rapidfuzz.distance import Indel

from rl_agents.rewards.verifiers.base import EquivalenceJudge, Scored, Verdict, demonstrated
from rl_agents.rewards.verifiers.tool_calls import difference, message_verdict
from rl_agents.tools.calls import Response, Tool, ToolCall, check_call
from rl_agents.tools.strict_json import strict_json
from rl_agents.traces.turns import Turn

COMMAND_PROMPT = """\
Two agents work in the same terminal. Decide whether their commands are interchangeable here: run now, they would show \
or change the same things, so that the work could go on from either. If one says that the task is complete and the \
other does not, they are not interchangeable.

[End of the dialogue]
{state}

[Agent A]
{first}

[Agent B]
{second}

Are the commands of B interchangeable with those of A? Reply with one word, yes or no."""
#: Arguments of a tool call that are typed into a shell.
COMMAND_ARGUMENTS = ("cmd", "command", "keystrokes", "chars")
#: Word similarity of a tool call's other texts.
OTHER_THRESHOLD = 0.1


@dataclass(frozen=True, slots=True)
class Harness:
    """How an agent writes its commands: the JSON schema of its messages, and the key that ends the task."""

    schema: Mapping[str, Any]
    complete_key: str


def _harness(texts: list[str], complete_key: str, command: Mapping[str, str]) -> Harness:
    kinds = {name: {"type": kind} for name, kind in command.items()}
    item = {"type": "object", "properties": kinds, "required": ["keystrokes"]}
    properties: dict[str, Any] = {name: {"type": "string"} for name in texts}
    properties |= {complete_key: {"type": "boolean"}, "commands": {"type": "array", "items": item}}
    schema = {"type": "object", "properties": properties, "required": [*texts, "commands"]}
    return Harness(schema, complete_key)


HARNESSES: Mapping[str, Harness] = {
    "terminus_1": _harness(
        ["state_analysis", "explanation"],
        "is_task_complete",
        {"keystrokes": "string", "is_blocking": "boolean", "timeout_sec": "number"},
    ),
    "terminus_2": _harness(["analysis", "plan"], "task_complete", {"keystrokes": "string", "duration": "number"}),
}


@dataclass(frozen=True, slots=True)
class Commands:
    keystrokes: str
    complete: bool


@dataclass(frozen=True)
class TerminalVerifier:
    """1 if the commands are nearly the expert's, or have the same effect.

    The checks in their order: the response fits the harness's JSON schema, it declares the task complete if and only if
    the expert does, and the joined keystrokes are similar or the judge finds them interchangeable. For harnesses with
    tools (codex and others), the same tools are called in the same order, their shell text is similar, and their other
    arguments are equivalent.

    Attributes:
        similarity: 2·LCS/(len_a + len_b) from which keystrokes count as the same (rapidfuzz's normalized Indel
            similarity; NeMo-Gym's difflib ratio is never larger). 0.95, or 0.9 without a judge.
        judge: asked below that similarity; None for no judge.
    """

    similarity: float = 0.95
    judge: EquivalenceJudge | None = None

    def score(self, turn: Turn, response: Response) -> Scored:
        expected = demonstrated(turn)
        if expected.calls or response.calls:
            return self._score_calls(turn, response)
        readable = (h for h in HARNESSES.values() if isinstance(read_commands(expected.content, h), Commands))
        harness = HARNESSES.get(turn.harness) or next(readable, None)
        if harness is None:
            verdict = message_verdict(turn, response)
            assert verdict is not None
            return verdict
        gold = read_commands(expected.content, harness)
        if isinstance(gold, str):
            return Verdict(0.0, f"demonstration: {gold}")
        found = read_commands(response.content, harness)
        if isinstance(found, str):
            return Verdict(0.0, found)
        if gold.complete != found.complete:
            return Verdict(0.0, f"{harness.complete_key} is {str(found.complete).lower()}")
        return self._compare(turn, gold.keystrokes, found.keystrokes, expected.content, response.content)

    def _score_calls(self, turn: Turn, response: Response) -> Scored:
        if verdict := message_verdict(turn, response):
            return verdict
        names = [call.name for call in response.calls]
        if names != [call.name for call in turn.calls]:
            return Verdict(0.0, f"calls {', '.join(names)}")
        for gold, found in zip(turn.calls, response.calls, strict=True):
            if problem := difference(_other_arguments(gold), _other_arguments(found), OTHER_THRESHOLD):
                return Verdict(0.0, problem)
            if turn.tools and not check_call(gold, turn.tools) and (problem := check_call(found, turn.tools)):
                return Verdict(0.0, problem)
        gold_text, found_text = (_shell_text(calls) for calls in (turn.calls, response.calls))
        return self._compare(turn, gold_text, found_text, gold_text, found_text)

    def _compare(self, turn: Turn, gold: str, found: str, gold_shown: str, found_shown: str) -> Scored:
        alike = Indel.normalized_similarity(gold, found)
        if alike >= self.similarity:
            return Verdict(1.0, f"commands {alike:.2f} alike")
        if self.judge is None:
            return Verdict(0.0, f"commands only {alike:.2f} alike")
        return self.judge.equivalent(COMMAND_PROMPT, turn, found_shown, gold_shown)


def read_commands(content: str, harness: Harness) -> Commands | str:
    try:
        data = strict_json(content.strip())
    except ValueError as error:
        return f"malformed: {error}"
    if not isinstance(data, Mapping):
        return f"malformed: {type(data).__name__}, not an object"
    if problem := check_call(ToolCall("terminal", data), [Tool("terminal", "", harness.schema)]):
        return problem.replace("the arguments of 'terminal' do not fit its schema", "does not fit the harness's schema")
    keystrokes = "".join(command["keystrokes"] for command in data["commands"])
    return Commands(keystrokes, bool(data.get(harness.complete_key, False)))


def _shell_text(calls: tuple[ToolCall, ...]) -> str:
    texts = [str(call.arguments[name]) for call in calls for name in COMMAND_ARGUMENTS if name in call.arguments]
    return "\n".join(texts)


def _other_arguments(call: ToolCall) -> dict[str, Any]:
    return {name: value for name, value in call.arguments.items() if name not in COMMAND_ARGUMENTS}
