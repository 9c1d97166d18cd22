"""The members of a group, and the steps of an episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rl_agents.algorithms.vspo import smoothing_weight
from rl_agents.data.trajectory import SUMMARY_ANCHOR
from rl_agents.store.reader import PoolReader, Stored, StoreQuery
from rl_agents.store.records import Outcome, Session
from rl_agents.store.schema import load_text
from rl_agents.viewer.advantage_explanation import (
    Member,
    equal_returns,
    from_values,
    from_weighted_group,
    group_figures,
)
from rl_agents.viewer.groups import members_of, session_row
from rl_agents.viewer.query_params import Params
from rl_agents.viewer.step_values import Worth, split_thoughts, worth_of
from rl_agents.web.errors import ApiError

#: Characters of a text in the first answer, and in further pieces.
SHORT, LONG, PIECE = 1_500, 12_000, 200_000
FIELDS = ("observation", "action", "anchor")
#: Most members of a group on a page.
MEMBERS = 64
#: Truncation rule -> its keys.
RULE_KEYS = {
    "t3": ("truncation_window", "truncation_stall", "truncation_min_turns"),
    "similarity": ("truncation_similarity", "truncation_embedder", "truncation_min_turns"),
    "random": ("truncation_beta", "truncation_min_turns"),
}


def find(reader: PoolReader, session: str) -> Stored:
    """Return a session; raises `ApiError` (404)."""
    found = next(reader.stored(StoreQuery(ids=[session])), None)
    if found is None:
        raise ApiError(404, f"no session '{session[:80]}' in this pool (has it ended?)", "unknown_session", "session")
    return found


def group(params: Params) -> dict[str, Any]:
    """Return the members of a group with their steps; the page compares them."""
    iteration, number = params.whole("iteration"), params.whole("group")
    with params.run.reader() as reader:
        kind = params.text("kind", "episode")
        members = members_of(reader, iteration, number, kind)
        if not members:
            raise ApiError(404, f"no group {number} of kind {kind} in i{iteration + 1}", "unknown_group", "group")
        shown = members[:MEMBERS]
        worth = worth_of(reader, [member.session.id for member in shown])
        rows = [
            {**session_row(m, worth.get(m.session.id, {})), "list": steps_of(reader, m, worth, SHORT, apart=True)}
            for m in shown
        ]
        return {
            "run": params.run.name, "iteration": iteration, "group": number, "kind": kind,
            "task": members[0].session.task_id, "members": rows, "left_out": len(members) - len(shown),
            "figures": group_figures([member.total for member in members]),
        }  # fmt: skip


def episode(params: Params) -> dict[str, Any]:
    """Return a session with its steps, and explanations of their advantages."""
    run = params.run
    with run.reader() as reader:
        stored = find(reader, params.text("session"))
        s = stored.session
        members = members_of(reader, s.iteration, s.group_id, s.kind) or [stored]
        worth = worth_of(reader, [member.session.id for member in members[:MEMBERS]])
        steps = steps_of(reader, stored, worth, LONG)
        explain(reader, stored, steps, members[:MEMBERS], worth, run.settings())
        if s.kind == "episode" and all(step["advantage"] is None for step in steps):
            _from_samples(reader, s, steps)
        plain = {name: value for name, value in asdict(s).items() if name not in ("metrics", "facts")}
        return {
            "run": run.name, **plain, "seed": str(s.seed), "metrics": s.metrics, "facts": s.facts,
            "return": stored.total, "tokens": stored.tokens, "state": stored.state, "learned_in": stored.learned_in,
            "steps": steps, "tree": any(step["next"] is not None for step in steps),
            "siblings": [session_row(m, worth.get(m.session.id, {})) for m in members[:MEMBERS]],
            "group_figures": group_figures([m.total for m in members]),
            "marks": marks(s, run.settings()),
        }  # fmt: skip


def text(params: Params) -> dict[str, Any]:
    name, start = params.text("field"), max(0, params.whole("start", 0))
    if name not in FIELDS:
        raise ApiError(400, f"no field '{name[:40]}': one of {', '.join(FIELDS)}", "unknown_field", "field")
    with params.run.reader() as reader:
        outcomes = reader.outcomes(params.text("session"))
    ordinal = params.whole("ordinal")
    if not 0 <= ordinal < len(outcomes):
        raise ApiError(404, f"no step {ordinal + 1}", "unknown_step", "ordinal")
    whole = str(getattr(outcomes[ordinal], name))
    return {"text": whole[start : start + PIECE], "start": start, "length": len(whole)}


def steps_of(
    reader: PoolReader, stored: Stored, worth: Mapping[str, Mapping[int, Worth]], most: int, apart: bool = False
) -> list[dict[str, Any]]:
    """Return a session's steps, and at most ``most`` characters of each text.

    Args:
        apart: separate the thoughts from the actions.
    """
    outcomes = reader.outcomes(stored.session.id)
    known = worth.get(stored.session.id, {})
    calls = _calls(reader, [outcome.call for outcome in outcomes])
    return [
        {
            **_step(outcome, most, apart),
            "reward": outcome.reward,
            **_credit(known.get(outcome.ordinal)),
            **calls.get(outcome.call, {}),
        }
        for outcome in outcomes
    ]


def _step(outcome: Outcome, most: int, apart: bool) -> dict[str, Any]:
    action, thought = split_thoughts(outcome.action) if apart else (outcome.action, "")
    texts = {"observation": outcome.observation, "action": action, "thought": thought}
    cut = {name: len(value) for name, value in texts.items() if len(value) > most}
    anchor = None if outcome.anchor == outcome.observation else outcome.anchor[:SHORT]
    summary = outcome.anchor.startswith(SUMMARY_ANCHOR)
    return {
        "ordinal": outcome.ordinal, **{name: value[:most] for name, value in texts.items()}, "cut": cut,
        "anchor": anchor, "summary": summary, "valid": outcome.valid, "next": outcome.next_step,
        "metrics": outcome.metrics or {},
        "call": str(outcome.call),
    }  # fmt: skip


def _credit(worth: Worth | None) -> dict[str, Any]:
    if worth is None:
        return {"advantage": None, "value": None}
    return {"advantage": worth.advantage, "value": worth.value, "learned": worth.iteration}


def samples_of(reader: PoolReader, seed: int) -> dict[str, tuple[str, float]]:
    """Return call -> (session, reward) of the samples of a search, which are separate sessions."""
    query = (
        "SELECT o.call, s.id, o.reward FROM sessions s JOIN outcomes o ON o.session = s.id "
        "WHERE s.seed = ? AND s.kind = 'sample'"
    )
    return {str(call): (load_text(name), reward) for call, name, reward in reader.rows(query, seed)}


def _from_samples(reader: PoolReader, session: Session, steps: Sequence[dict[str, Any]]) -> None:
    """Give the steps of a search's path their advantages among siblings."""
    samples = samples_of(reader, session.seed)
    met = [samples[step["call"]][0] for step in steps if step["call"] in samples]
    worth = worth_of(reader, met)
    for step in steps:
        name, reward = samples.get(step["call"], ("", 0.0))
        if known := worth.get(name, {}).get(0):
            step.update(_credit(known), sample=name, step_reward=float(reward))


def _calls(reader: PoolReader, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return sizes, versions and mean log-probabilities of calls, without token ids."""
    found: dict[int, dict[str, Any]] = {}
    for call in reader.calls(ids):
        mean = sum(call.logprobs) / len(call.logprobs) if call.logprobs else None
        found[call.id] = {
            "prompt_tokens": len(call.prompt_ids), "tokens": len(call.response_ids), "logprob": mean,
            "version": call.policy_version, "spans": call.version_spans, "finish": call.finish_reason,
            "parent": str(call.parent),
        }  # fmt: skip
    return found


def explain(
    reader: PoolReader, stored: Stored, steps: Sequence[dict[str, Any]], members: Sequence[Stored],
    worth: Mapping[str, Mapping[int, Worth]], settings: Mapping[str, Any],
) -> None:  # fmt: skip
    """Set ``why`` of each step to the explanation of its advantage, if there is one."""
    name, factors = stored.session.id, draw_factors(settings)
    query = "SELECT sum(reward) FROM current_batches JOIN outcomes USING (session) WHERE iteration = ? GROUP BY session"
    silent = not any(step["advantage"] for step in steps)
    batch = [total for (total,) in reader.rows(query, stored.learned_in)] if silent else []
    for step in steps:
        compared = [_member(member, worth.get(member.session.id, {}), step["ordinal"]) for member in members]
        if found := equal_returns(compared, batch) or from_weighted_group(compared, name, factors):
            step["why"] = {"by": "group", **found}
    if all("why" in step for step in steps) or any(step["value"] is None for step in steps):
        return
    others = [m for m in members if worth.get(m.session.id)]
    at_hand = [[_figures(o, worth[m.session.id]) for o in reader.outcomes(m.session.id)] for m in others]
    place = next((index for index, member in enumerate(others) if member.session.id == name), None)
    explained = from_values(at_hand, settings) if place is not None else None
    if explained is not None and place is not None:
        for step, why in zip(steps, explained[place], strict=True):
            step["why"] = {
                "by": "values",
                "gamma": settings.get("gamma", 1.0),
                "gae_lambda": settings.get("gae_lambda", 1.0),
                **why,
            }


def draw_factors(settings: Mapping[str, Any]) -> list[float]:
    """Return possible factors of a task's advantages: VSPO's weights by number of draws."""
    if settings.get("algo") != "vspo" or settings.get("vspo_mode") == "none":
        return [1.0]
    alpha, clip = float(settings.get("vspo_alpha", 2.0)), bool(settings.get("vspo_clip", True))
    most = 1 + int(settings.get("tasks_per_iteration", 1))
    return [float(w) for w in smoothing_weight(range(1, most), alpha, clip=clip)]


def _member(member: Stored, worth: Mapping[int, Worth], ordinal: int) -> Member:
    """Return a member with its advantage at a step, or at its last step if it is shorter."""
    known = worth.get(ordinal) or (worth[max(worth)] if worth else None)
    return Member(member.session.id, member.total, known.advantage if known else None)


def _figures(outcome: Outcome, worth: Mapping[int, Worth]) -> tuple[float, float | None, float | None]:
    found = worth.get(outcome.ordinal)
    return outcome.reward, found.value if found else None, found.advantage if found else None


def marks(session: Session, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what progressive reward shaping and truncation did; what did nothing is omitted."""
    found = {"prs": stages(session, settings), "truncation": truncation(session, settings)}
    return {name: what for name, what in found.items() if what}


def stages(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stages of progressive reward shaping: value (None: not reached) and condition of each."""
    parts = session.facts.get("prs")
    if not isinstance(parts, Mapping):
        return {}
    form = str(settings.get("prs_form", "short"))
    first, second = (*(settings.get("prs_thresholds") or ()), 1.0, 1.0)[:2]
    needs = {
        "short": ("", "process ≥ 1"),
        "long": ("process ≥ 1", "judge ≥ 1"),
        "general": (f"process + format ≥ {first:g}", f"judge ≥ {second:g}"),
    }
    judge, answer = needs.get(form, ("", ""))
    rows = [("process", parts.get("process"), ""), ("format", parts.get("format"), "")]
    rows += [] if form == "short" else [("judge", parts.get("judge"), judge)]
    rows.append(("answer", parts.get("answer"), answer))
    return {
        "form": form, "stages": [{"name": name, "value": value, "needs": need} for name, value, need in rows],
        "paid": session.facts.get("environment_return"),
    }  # fmt: skip


def truncation(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return where and why a rule truncated the episode: the recorded fact, and the keys of the rule."""
    fact = session.facts.get("truncation")
    if not isinstance(fact, Mapping):
        return {}
    names = (*RULE_KEYS.get(str(fact.get("rule")), ()), "truncation_after")
    keys = {name.removeprefix("truncation_"): settings[name] for name in names if name in settings}
    return {**fact, "keys": keys}
