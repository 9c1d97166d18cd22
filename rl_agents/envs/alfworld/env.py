"""ALFWorld (section 2; StepPO, appendix B.2: 20 turns; 3SPO, appendix C.2: 50 turns).

The state keys (``info["anchor"]``, ``env.anchor``) use only texts that the agent has read. ``role`` is new, not from a
paper: numbers and unrelated things are excluded, and object, target and appliance of the task are called so. States of
different houses that are equally far from success share a key, so that tasks share what is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from rl_agents.chat.template import History
from rl_agents.envs.alfworld import SPEC, AlfworldOptions
from rl_agents.envs.alfworld.expert import Expert, kind_of
from rl_agents.envs.alfworld.families import CHANGES, read_goal
from rl_agents.envs.alfworld.native import NOTHING_HAPPENS, State
from rl_agents.envs.alfworld.prompts import STYLES, View, compact_text, find_command, read_command
from rl_agents.envs.alfworld.tasks import compiled_game
from rl_agents.envs.stateful import EpisodeState, StatefulEnv, StepResult
from rl_agents.errors import InputError


def role(view: View) -> str:
    """Return the family, the progress, and the text in roles; the text itself for tasks of other kinds."""
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
    """Return what is held, its state, whether a free object and the lamp were seen, and how many objects are placed."""
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
    """Return the compact words of a text: the first thing by role or as ``other``, later things by role only."""
    said: list[str] = []
    for word in compact_text(text).split():
        kind, dash, _ = word.partition("-")
        name = roles.get(kind, "" if any(w in ("other", *roles.values()) for w in said) else "other") if dash else word
        if name and name not in said:
            said.append(name)
    return said


ANCHORS: Mapping[str, Callable[[View], str]] = {
    "observation": lambda view: view.text,
    "situation": lambda view: "\n".join([view.text, *view.admissible]),
    "role": role,
}


@dataclass(frozen=True, slots=True)
class Episode(EpisodeState):
    """The state of an episode, small and picklable.

    Attributes:
        opening: the first observation.
        view: what the agent may know: room, current text, admissible commands, earlier steps.
        state: the engine's.
        invalid: number of turns without an admissible command.
    """

    task_id: str
    opening: str
    view: View
    state: State
    invalid: int = 0
    won: bool = False


class AlfworldEnv(StatefulEnv[Episode, AlfworldOptions]):
    """Do a household task by typing commands."""

    registered = SPEC

    def __init__(self, options: AlfworldOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        self._style, self._bare = STYLES[self.options.prompt], self.options.prompt == "compact"
        self._anchor = ANCHORS[self.options.anchor]

    def _begin(self, task_id: str) -> tuple[str, Episode]:
        game = compiled_game(task_id, self.options.data)
        state = game.start()
        text = game.intro(state)
        view = View(text, text, game.admissible(state))
        opening = self._style.window(view, 0)
        return opening, Episode(task_id, opening, view, state)

    def step(self, action: str) -> StepResult:
        """Run one turn with the agent's whole response, which `read_command` reads."""
        episode = self.state
        view = episode.view
        said = read_command(action, self._bare)
        command = find_command(said, view.admissible) if said is not None else None
        text, admissible, won, state = NOTHING_HAPPENS, view.admissible, False, episode.state
        if said is not None:
            game = compiled_game(episode.task_id, self.options.data)
            result = game.step(state, command or said)
            text, admissible, won, state = result.feedback, game.admissible(result.state), result.won, result.state
        view = View(view.room, text, admissible, (*view.history, (view.text, command or said or "")))
        new = replace(episode, view=view, state=state, invalid=episode.invalid + (command is None), won=won)
        observation, reward = self._style.turn(new.view), float(self.options.reward_scale * won)
        return self._end_turn(new, observation, reward, valid=command is not None, progress=None, terminated=won)

    def render_window(self, task: str, history: History, observation: str) -> str:
        """Write the style's prompt for the current step, with as many earlier steps as ``history`` has.

        Text that a caller added around the first observation, or after the current one, stays around the prompt.
        """
        episode = self.last_state
        added = observation.partition(self._style.turn(episode.view))[2] if history else ""
        window = self._style.window(episode.view, len(history)) + added
        before, opening, after = task.partition(episode.opening)
        return before + window + after if opening else window

    @property
    def view(self) -> View:
        return self.last_state.view

    def _report(self, episode: Episode) -> dict[str, Any]:
        view = episode.view
        metrics = {"invalid_actions": episode.invalid}
        if family := _family(view.room):
            metrics[f"won_{family}"] = episode.won
        return {
            "task_id": episode.task_id,
            "success": episode.won,
            "admissible_actions": list(view.admissible),
            "anchor": self._anchor(view),
            "metrics": metrics,
        }


@lru_cache(maxsize=1024)
def _family(room: str) -> str:
    """Return the short name of the task's family; empty for a task of another kind."""
    try:
        return read_goal(room).family.short
    except InputError:
        return ""


make = AlfworldEnv
