"""A scripted player that knows the goal's product: what can be reached in WebShop.

It searches with the instruction, with the goal product's title if that does not find it, opens the product, chooses
the wanted options and buys. It reads the state, not the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from rl_agents.envs.stateful import Played
from rl_agents.envs.stateful import play as play_episode
from rl_agents.envs.webshop.env import EpisodeState, WebShopEnv
from rl_agents.envs.webshop.goals import find_goal
from rl_agents.envs.webshop.pages import ITEM, NEXT, RESULTS, SEARCH
from rl_agents.envs.webshop.prompts import ENV_STEP
from rl_agents.envs.webshop.records import Goal, Product
from rl_agents.envs.webshop.reward import similar
from rl_agents.envs.webshop.shop import local_shop
from rl_agents.envs.webshop.spec import WebShopOptions
from rl_agents.envs.webshop.store import HITS, Store
from rl_agents.tools.calls import ToolCall, write_response


def expert_command(store: Store, goal: Goal, state: EpisodeState) -> str:
    """Return the next command of a player that never errs."""
    turn, product = state.turn, store.product(goal.asin)
    assert product is not None
    if turn.page.kind == SEARCH:
        return f"search[{goal.instruction if _finds(store, goal.instruction, goal) else goal.name}]"
    if turn.page.kind == RESULTS:
        listed = any(hit.asin == goal.asin for hit in turn.page.items)
        return f"click[{goal.asin.lower()}]" if listed else f"click[{NEXT.lower()}]"
    assert turn.page.kind == ITEM
    chosen = dict(turn.state.chosen)
    for axis, value in wanted_options(product, goal).items():
        if chosen.get(axis) != value:
            return f"click[{value}]"
    return "click[buy now]"


def wanted_options(product: Product, goal: Goal) -> Mapping[str, str]:
    """Return the option of each axis that the goal wants: by name and value, by value, or the nearest that counts."""
    wanted: dict[str, str] = {}
    for option in goal.options:
        if isinstance(option, tuple):
            wanted[option[0]] = option[1]
            continue
        exact = [(axis, value) for axis, values in product.options.items() for value in values if value == option]
        near = ((axis, v) for axis, values in product.options.items() for v in values if similar(v, option))
        for axis, value in (*exact, *near):
            if axis not in wanted:
                wanted[axis] = value
                break
    return wanted


def in_style(command: str, style: str) -> str:
    """Return the response that carries a command in a prompt style, without thoughts."""
    if style == "3spo":
        return f"<action>{command}</action>"
    if style == "steppo":
        return write_response("", [ToolCall(ENV_STEP.name, {"command": command})])
    return command


def play(task_id: str, options: WebShopOptions, max_turns: int = 0) -> Played:
    """Play ``task_id``; return the dialogue and the last ``info``.

    Raises:
        InputError: unknown task id.
    """
    env = WebShopEnv(options, max_turns)
    store = local_shop(options.catalogue).store
    goal = find_goal(store, task_id)
    act = partial(expert_command, store, goal)
    return play_episode(env, task_id, lambda shown: (shown, in_style(act(env.state), options.prompt)))


def _finds(store: Store, query: str, goal: Goal) -> bool:
    return any(hit.asin == goal.asin for hit in store.search(query)[:HITS])
