"""What names a state for methods that compare or count states (``info["anchor"]``, ``env.anchor``).

- ``observation``: the game's text itself (GiGPO, 3SPO). It does not say where the agent is or what it holds.
- ``situation``: the text and the admissible commands, which imply place, open doors and what is held.
- ``role``: what the text means to the task, in a few words. Numbers and other things are left out, and the object, its
  target and the appliance of the task go by these names; so states of different houses that are equally far from done
  are one, and what was found out in one task counts in the next. Ours, not in a paper.

All of them are made from what the agent has read, and from nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rl_agents.envs.alfworld.compact import compact_text
from rl_agents.envs.alfworld.expert import Expert, kind_of
from rl_agents.envs.alfworld.families import CHANGES
from rl_agents.envs.alfworld.prompts import View
from rl_agents.errors import InputError


def observation(view: View) -> str:
    """The text."""
    return view.text


def situation(view: View) -> str:
    """The text and the admissible commands."""
    return "\n".join([view.text, *view.admissible])


def role(view: View) -> str:
    """Family, what is held, known and done, and the text in roles; the text itself for tasks of other kinds."""
    try:
        agent = Expert(view.room)
    except InputError:
        return view.text
    texts = [*(text for text, _ in view.history[1:]), view.text]
    for (_, command), text in zip(view.history, texts if view.history else [], strict=True):
        agent.observe(command, text)
    goal = agent.goal
    roles = {goal.object_type: "object", goal.target_type: "target"}
    if goal.family.change:
        roles[CHANGES[goal.family.change][1].lower()] = "appliance"
    return " ".join([goal.family.short, *_progress(agent), ":", *_in_roles(view.text, roles)])


def _progress(agent: Expert) -> list[str]:
    """What is held, whether it is in its state, whether a free object and the target are known, and what is placed."""
    goal, held = agent.goal, agent.holding
    there = [(thing, place) for place, things in agent.contents.items() for thing in things]
    objects = [place for thing, place in there if kind_of(thing) == goal.object_type]
    placed = sum(kind_of(place) == goal.target_type for place in objects)
    said = ["nothing" if held is None else "object" if kind_of(held) == goal.object_type else "other"]
    if goal.family.change and any(state == goal.family.change for state in agent.state.values()):
        said.append(goal.family.change)
    if len(objects) > placed:
        said.append("known")
    if goal.family.in_light and any(kind_of(thing) == goal.target_type for thing, _ in there):
        said.append("lamp")
    return [*said, f"placed-{placed}"] if placed else said


def _in_roles(text: str, roles: Mapping[str, str]) -> list[str]:
    """The compact words of a text: the first thing by its role or as ``other``, further ones only if they have one."""
    said: list[str] = []
    for word in compact_text(text).split():
        kind, dash, _ = word.partition("-")
        name = roles.get(kind, "" if any(w in ("other", *roles.values()) for w in said) else "other") if dash else word
        if name and name not in said:
            said.append(name)
    return said


ANCHORS: Mapping[str, Callable[[View], str]] = {"observation": observation, "situation": situation, "role": role}
