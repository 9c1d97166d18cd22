"""Episodes: their specification, their steps and their result.

Token ids are exact: the engine read ``prompt_ids`` and sampled ``response_ids``. They are never decoded and tokenized
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

#: `Step.next_step` of a call whose answer was not used: an aborted retry, or a rejected sample.
ABANDONED = -2
#: Begins the `Step.anchor` of a summary; the rest is unique, so that step-level credit compares it with no other step.
SUMMARY_ANCHOR = "summary of the dialogue "
#: Fact of an episode that a limit cut: the ids that the policy would have read next.
NEXT_PROMPT = "next_prompt"
#: Fact of an episode with hints for a teacher: a list of (step, first, ids): it reads ``prompt_ids[:first] + ids``.
HINTS = "hints"


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """One episode to run. ``seed`` determines all its randomness on every machine.

    Attributes:
        task_id: the task instance, a member of one of the environment's task sets.
        group_id: episodes of one group have the same task and are compared (GRPO).
        seed: stream derived from (run seed, iteration, group, member).
        seats, seat: number of players of a game that has a policy in every seat (`rl_agents.rollout.seats`), 1 for
            other episodes, and the one of this episode. The seats of a game have consecutive groups.
        opponent: older weights in the game's other seats: (iteration, folder); None: they are episodes, too.
    """

    task_id: str
    group_id: int
    member: int
    seed: int
    seats: int = field(default=1, compare=False)
    seat: int = field(default=0, compare=False)
    opponent: tuple[int, str] | None = field(default=None, compare=False)


@dataclass(slots=True)
class Step:
    """One interaction step: the policy read ``prompt_ids`` and wrote ``response_ids``, and the environment answered.

    Attributes:
        prompt_ids: the exact ids that the engine read.
        response_ids: the exact ids that it sampled, including the end-of-turn token if it was sampled.
        logprobs: engine log-probabilities of ``response_ids`` at the sampling temperature.
        policy_version: of the weights that sampled the first token, in learner updates.
        finish_reason: ``stop`` (end-of-turn sampled) or ``length`` (budget spent).
        observation: text that the environment showed before the action.
        anchor: the environment's key of the state, for grouping steps (default: the observation).
        action: the decoded response, for people and for the environment only.
        valid: the environment could parse the action.
        call: the call's name in the trajectory store (`rl_agents.store.records`); 0: it was not recorded.
        next_step: index of the step that first reads this one's result, if an agent's calls form a tree (several
            conversations concurrently); -1: the conversation ends here; `ABANDONED`: it was not used and gets no
            credit, unless it has a reward; None: the next in the list, as in plain dialogues (`rl_agents.data.tree`).
        version_spans: (version, tokens) in order, if weights changed within the response; empty: they did not.
        metrics: finite numbers that the environment reports of this turn (``info["turn_metrics"]``).
    """

    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float]
    policy_version: int
    finish_reason: str
    observation: str
    anchor: str
    action: str
    reward: float = 0.0
    valid: bool = True
    call: int = 0
    next_step: int | None = None
    version_spans: tuple[tuple[int, int], ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Step:
        return cls(**{**data, "version_spans": tuple((v, count) for v, count in data["version_spans"])})

    @property
    def is_summary(self) -> bool:
        """Whether it is the policy's summary of the dialogue (``context=summary(n)``), which no environment read."""
        return self.anchor.startswith(SUMMARY_ANCHOR)


@dataclass(slots=True)
class Trajectory:
    """One finished episode.

    Attributes:
        end_cause: reason for its end: ``terminated``, ``max_turns``, ``context_length``, ``env_truncated``,
            ``truncated_by_rule: ...``, or a failure: ``env_error: ...``, ``env_timeout: ...``, ``env_garbage: ...``,
            ``judge_error: ...``.
        failed: the environment or the judge failed, not the policy; such episodes never reach the learner.
        terminated: the task ended by its own rules, or T3 ended it (no bootstrap).
        truncated: a turn or context limit cut it.
        metrics: numbers that the environment reports at the end (``info["metrics"]``).
        facts: plain data that rewards and reports read: ``references`` (accepted answers), ``points`` (required
            statements of a long answer), ``evidence`` (results of the tools), ``chat`` (messages and tools at the
            beginning, if they are more than the observation), ``next_prompt`` (`NEXT_PROMPT`, for
            ``bootstrap_on_truncation``), ``hints`` (`HINTS`, with a teacher), ``truncation`` (rule, turn, outcome),
            ``seat`` and ``opponent`` (of a game: the seat, and the iteration of older weights in the others),
            ``environment_return`` and ``prs`` (the return that a shaped reward replaced, and its parts).
    """

    task_id: str
    group_id: int
    member: int
    seed: int
    steps: list[Step] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False
    end_cause: str = ""
    failed: bool = False
    success: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def episode_return(self) -> float:
        return sum(step.reward for step in self.steps)

    @property
    def turns(self) -> int:
        """Number of steps except summaries."""
        return sum(not step.is_summary for step in self.steps)

    @property
    def response_tokens(self) -> int:
        return sum(len(step.response_ids) for step in self.steps)

    def add_hint(self, ids: Sequence[int]) -> None:
        """Record that a teacher reads ``ids`` before the last step."""
        number, prompt = len(self.steps) - 1, self.steps[-1].prompt_ids
        first = next((i for i, pair in enumerate(zip(prompt, ids, strict=False)) if len({*pair}) > 1), len(prompt))
        self.facts.setdefault(HINTS, []).append([number, first, list(ids[first:])])

    def to_json(self) -> dict[str, Any]:
        own: dict[str, Any] = plain(self)
        return own

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trajectory:
        return cls(**{**data, "steps": [Step.from_json(step) for step in data["steps"]]})


def continued(before: Step | None, prompt_ids: list[int]) -> int:
    """Return the length of a step's prompt and response if ``prompt_ids`` begins with them, else 0."""
    said = before.prompt_ids + before.response_ids if before is not None else []
    return len(said) if prompt_ids[: len(said)] == said else 0


def unrepeated(steps: Sequence[Step]) -> list[tuple[int, Step]]:
    """Return steps for transport: the length of what a prompt continues, and the step with the rest of the prompt.

    A dialogue of n turns holds its first ids n times, of which pickle would make n times as many objects.
    """
    lengths = [continued(before, step.prompt_ids) for before, step in zip([None, *steps], steps, strict=False)]
    return [(n, replace(step, prompt_ids=step.prompt_ids[n:])) for n, step in zip(lengths, steps, strict=True)]


def repeated(parts: Sequence[tuple[int, Step]]) -> list[Step]:
    """Inverse of `unrepeated`; changes the steps."""
    said = list[int]()
    for length, step in parts:
        step.prompt_ids = said[:length] + step.prompt_ids
        said = step.prompt_ids + step.response_ids
    return [step for _, step in parts]


def step_metrics(steps: Sequence[Step]) -> dict[str, float]:
    """Return means over steps, of which there is at least one; of a turn's own metrics over those that have them."""
    own: dict[str, list[float]] = {}
    for step in steps:
        for name, value in step.metrics.items():
            own.setdefault(name, []).append(value)
    return {
        "rollout/response_length_mean": sum(len(step.response_ids) for step in steps) / len(steps),
        "rollout/length_limited_share": sum(step.finish_reason == "length" for step in steps) / len(steps),
        "rollout/invalid_action_share": sum(not step.valid for step in steps) / len(steps),
        **{f"turn/{name}": sum(values) / len(values) for name, values in sorted(own.items())},
    }


def seat_metrics(kind: str, trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return mean return and success by seat of games; nothing for other episodes."""
    found: dict[str, float] = {}
    for seat in sorted({t.facts["seat"] for t in trajectories if "seat" in t.facts}):
        own = [t for t in trajectories if t.facts.get("seat") == seat]
        found[f"{kind}/return_seat_{seat}"] = sum(t.episode_return for t in own) / len(own)
        found[f"{kind}/success_seat_{seat}"] = sum(t.success for t in own) / len(own)
    return found


def plain(value: Any) -> Any:
    """Return data classes as dictionaries, at any depth, and containers as copies.

    A list is searched only if its first element may contain a data class: lists are homogeneous here, and lists of
    numbers are long.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        flat = not value or isinstance(value[0], int | float | str | None)
        return list(value) if flat else [plain(part) for part in value]
    return value
