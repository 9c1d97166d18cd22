"""CircuitDecoding (T3, appendix C.1 and C.3; the released code allows 14 turns).

The ``paper`` prompt is T3's figure 6 word for word. In ``compact``, a circuit is one word, its truth table, which also
replaces the index of a candidate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.circuit_decoding import SPEC, CircuitDecodingOptions, tasks
from rl_agents.envs.circuit_decoding.tasks import NUM_INPUTS, Task
from rl_agents.envs.stateful import EpisodeState, StepResult, TaggedAction, TaggedEnv, malformed

_PAPER_PROMPT = """\
Welcome to the Circuit Deduction Challenge!

## The Setup:
- There are {num_circuits} circuits, labeled {circuit_labels}.
- Each circuit accepts {num_inputs} binary inputs (0 or 1) and produces a single binary output (0 or 1).
- Each circuit is drawn from a fixed candidate list of {num_candidates} possible logical structures, each associated \
with an index:
{candidate_list_str}

## Your Goal:
Identify which circuits from the candidate list correspond exactly to circuits {circuit_labels}.

## How to Play:
You can interact with me for several turns to determine the true underlying circuits:
1. At each turn, query one circuit with any binary input of your choice.
2. Use the specified format for your query. For example, to query circuit A with inputs x0=1, x1=0, x2=1, ask: \
<interact>A(1, 0, 1)</interact>.
3. You must make only one query at each turn. I will return the binary output for that circuit on the given input.
4. Ask strategic queries that maximize information gain. Your goal is to minimize the number of turns by leveraging \
the feedback at each step to narrow down the candidate possibilities.

## Final Submission:
Once you are confident, submit your final answer by providing the indices of the identified circuits from the \
candidate list inside <answer> and </answer>. For example, if A corresponds to candidate 13 and B corresponds to 6, \
your answer must be: <answer>13, 6</answer>.

Please start with your first query."""

NOT_A_QUERY = "not-a-query"
UNKNOWN_CIRCUIT = "unknown-circuit"

_QUERY = re.compile(r"\s*([A-Za-z])[\s(:]*([01](?:[\s,]*[01])*)\s*\)?\s*")
_SEPARATORS = re.compile(r"[\s,]+")
_LONGEST_CONTENT = 1000


def candidate_names(task: Task, style: str) -> tuple[str, ...]:
    """Return the names of candidates in answers: indices from 1, or truth tables in the compact style."""
    return task.tables if style == "compact" else tuple(str(index + 1) for index in range(len(task.tables)))


def read_answer(content: str, task: Task, style: str) -> tuple[int, ...]:
    """Return the candidates in an answer, in order; -1 for unknown names.

    The result is empty if the number of names is not the number of hidden circuits.
    """
    if len(content) > _LONGEST_CONTENT:
        return ()
    names = [name for name in _SEPARATORS.split(content) if name]
    positions = {name: position for position, name in enumerate(candidate_names(task, style))}
    if len(names) != len(task.hidden):
        return ()
    return tuple(positions.get(name, -1) for name in names)


def query_text(label: str, bits: str, style: str) -> str:
    """Return a query as the agent writes it: ``A(1, 0, 1)``, or ``A 101`` in the compact style."""
    return f"{label} {bits}" if style == "compact" else f"{label}({', '.join(bits)})"


@dataclass(frozen=True, slots=True)
class GameState(EpisodeState):
    """The state of an episode.

    Attributes:
        survivors: for every hidden circuit, the candidates (positions) that agree with all outputs so far.
        wasted_queries: number of queries that removed no candidate.
        right: number of circuits that the answer identified.
    """

    task: Task
    survivors: tuple[tuple[int, ...], ...]
    wasted_queries: int = 0
    right: int = 0

    @property
    def success(self) -> bool:
        return self.right == len(self.task.hidden)


class CircuitDecodingEnv(TaggedEnv[GameState, CircuitDecodingOptions]):
    """Identify hidden Boolean circuits from their outputs."""

    registered = SPEC
    answer_now = "No further query is possible. You must now submit your final answer inside <answer> and </answer>."
    your_turn = "\nNow it is your turn:"

    def _begin(self, task_id: str) -> tuple[str, GameState]:
        task = tasks.find_task(task_id)
        state = GameState(task, (tuple(range(len(task.tables))),) * len(task.hidden))
        if self._compact:
            return f"{' '.join(task.labels)} : {' '.join(sorted(task.tables))}", state
        prompt = _PAPER_PROMPT.format(
            num_circuits=len(task.hidden),
            circuit_labels=", ".join(task.labels),
            num_inputs=NUM_INPUTS,
            num_candidates=len(task.tables),
            candidate_list_str="\n".join(f"{i}: {text}" for i, text in enumerate(task.expressions, start=1)),
        )
        return prompt, state

    def question(self, content: str, state: GameState) -> str | TaggedAction:
        """Return ``<label><bits>``, such as ``A101``: a hidden circuit and all inputs; brackets and commas are free."""
        match = _QUERY.fullmatch(content) if len(content) <= _LONGEST_CONTENT else None
        bits = _SEPARATORS.sub("", match[2]) if match else ""
        if match is None or len(bits) != NUM_INPUTS:
            return malformed(NOT_A_QUERY)
        label = match[1].upper()
        return label + bits if label in state.task.labels else malformed(UNKNOWN_CIRCUIT)

    @property
    def reasons(self) -> dict[str, str]:
        circuits = ", ".join(self.state.task.labels)
        return {
            NOT_A_QUERY: f"a query must name one circuit and give {NUM_INPUTS} binary inputs, such as A(1, 0, 1)",
            UNKNOWN_CIRCUIT: f"there is no such circuit; the circuits are {circuits}",
        }

    def _answer(self, state: GameState, content: str) -> StepResult:
        chosen = read_answer(content, state.task, self.options.prompt)
        right = sum(c == h for c, h in zip(chosen, state.task.hidden, strict=False))
        new = replace(state, right=right)
        possible = bool(chosen) and all(c in s for c, s in zip(chosen, state.survivors, strict=True))
        observation = "correct" if new.success else "wrong"
        return self._end_turn(new, observation, float(new.success), valid=True, progress=possible, terminated=True)

    def _ask(self, state: GameState, query: str) -> StepResult:
        label, bits = query[0], query[1:]
        task, circuit = state.task, state.task.labels.index(label)
        value = tasks.output(task.tables[task.hidden[circuit]], bits)
        kept = tasks.consistent(task.tables, state.survivors[circuit], bits, value)
        after = (*state.survivors[:circuit], kept, *state.survivors[circuit + 1 :])
        progress = tasks.progresses(state.survivors, after)
        new = replace(state, survivors=after, wasted_queries=state.wasted_queries + (not progress))
        asked = query_text(label, bits, self.options.prompt)
        # The sentence is ours: the paper does not print one.
        sentence = f"The output of your latest query {asked}: {value}.{self.your_turn}"
        observation = str(value) if self._compact else sentence
        return self._end_turn(new, observation, valid=True, progress=progress, query=asked)

    def _report(self, state: GameState) -> dict[str, Any]:
        task, names = state.task, candidate_names(state.task, self.options.prompt)
        known = " | ".join(
            f"{label} {' '.join(str(c + 1) for c in candidates)}"
            for label, candidates in zip(task.labels, state.survivors, strict=True)
        )
        return {
            "task_id": task.task_id,
            "success": state.success,
            "references": [(" " if self._compact else ", ").join(names[position] for position in task.hidden)],
            "anchor": f"{' '.join(task.tables)} : {known}",
            "metrics": {
                "survivors": tasks.total(state.survivors),
                "wasted_queries": state.wasted_queries,
                "circuits_right": state.right / len(task.hidden),
            },
        }


make = CircuitDecodingEnv
