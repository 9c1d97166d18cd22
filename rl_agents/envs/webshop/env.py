"""WebShop (arXiv 2207.01206; StepPO, appendix B.2; 3SPO, appendix C.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.stateful import EpisodeState, StatefulEnv, StepResult
from rl_agents.envs.webshop import SPEC, WebShopOptions, prompts
from rl_agents.envs.webshop.pages import MAX_ACTION, Move, State, act
from rl_agents.envs.webshop.tasks import ShopReply, find_goal, local_store, reply


@dataclass(frozen=True, slots=True)
class ShopState(EpisodeState):
    """The state of an episode: the shop's last reply, and the message about the last action (empty if it was valid)."""

    task_id: str
    turn: ShopReply
    problem: str = ""
    invalid: int = 0
    searches: int = 0


class WebShopEnv(StatefulEnv[ShopState, WebShopOptions]):
    """Find and buy the product that an instruction describes."""

    registered = SPEC

    def __init__(self, options: WebShopOptions | None = None, max_turns: int = 0) -> None:
        super().__init__(options, max_turns)
        self._store = local_store(self.options.catalogue)

    def _begin(self, task_id: str) -> tuple[str, ShopState]:
        turn = reply(self._store, find_goal(self._store, task_id), Move(State()))
        return prompts.first_observation(turn, self.options.prompt), ShopState(task_id, turn)

    def step(self, action: str) -> StepResult:
        state = self.state
        read = prompts.read_command(action, state.turn.page, self.options.prompt)
        if read.problem:
            turn = replace(state.turn, problem=read.problem)
        else:
            goal = state.turn.goal
            turn = reply(self._store, goal, act(self._store, goal, state.turn.state, read.command[:MAX_ACTION]))
        problem = prompts.problem_text(read, turn.problem, self.options.prompt)
        searched = state.turn.page.kind == "search" and not problem
        new = replace(
            state,
            turn=turn,
            problem=problem,
            invalid=state.invalid + bool(problem),
            searches=state.searches + searched,
        )
        query = read.command.strip() if searched else ""
        score, valid = turn.score, not problem
        if score is None:
            observation = prompts.next_observation(turn, self.options.prompt, problem)
            return self._end_turn(new, observation, valid=valid, progress=None, query=query)
        reward = score.reward if self.options.reward == "score" else self.options.success_reward * score.success
        observation = prompts.last_observation(score, self.options.prompt)
        return self._end_turn(new, observation, reward, valid=valid, progress=None, terminated=True, query=query)

    def render_window(self, task: str, history: tuple[tuple[str, str], ...], observation: str) -> str:
        state = self.last_state
        return prompts.window(state.turn, self.options.prompt, state.problem, history, max(state.turns, len(history)))

    def _report(self, state: ShopState) -> dict[str, Any]:
        turn, score = state.turn, state.turn.score
        chosen = ", ".join(f"{axis}: {value}" for axis, value in sorted(turn.state.chosen))
        names = ("score", "score_type", "score_attributes", "score_options", "score_price")
        parts = (score.reward, score.type, score.attributes, score.options, score.price) if score else (0.0,) * 5
        return {
            "task_id": state.task_id,
            "success": score is not None and score.success,
            "admissible_actions": list(turn.page.actions),
            "anchor": f"{state.task_id} | {' | '.join(turn.page.texts)} | {chosen}",
            "metrics": {
                **dict(zip(names, parts, strict=True)),
                "bought": score is not None,
                "searches": state.searches,
                "invalid_actions": state.invalid,
            },
        }


make = WebShopEnv
