"""The scripted players of WebShop, and its warm-start model.

The expert knows the goal's product and reads the state, not the text. The mediocre shopper, which teaches the
warm-start model, shops in the small catalog, where every property, color and sort of product is one word, and so one
token. The model copies most of its output from the request; two layers are enough for that.
"""

from __future__ import annotations

from collections.abc import Mapping

from rl_agents.envs.starters import Act, ScriptedPlayer, Slips, word_starter
from rl_agents.envs.webshop import generated
from rl_agents.envs.webshop.env import ShopState, WebShopEnv
from rl_agents.envs.webshop.pages import ITEM, NEXT, RESULTS, SEARCH
from rl_agents.envs.webshop.prompts import COMPACT_PROBLEMS, ENV_STEP
from rl_agents.envs.webshop.records import Goal, Product
from rl_agents.envs.webshop.reward import similar
from rl_agents.envs.webshop.store import HITS, Store
from rl_agents.envs.webshop.tasks import find_goal, local_store
from rl_agents.tools.calls import ToolCall, write_response


def expert_command(store: Store, goal: Goal, state: ShopState) -> str:
    turn, product = state.turn, store.product(goal.asin)
    assert product is not None
    if turn.page.kind == SEARCH:
        found = any(hit.asin == goal.asin for hit in store.search(goal.instruction)[:HITS])
        return f"search[{goal.instruction if found else goal.name}]"
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
    """Return the wanted option of each axis: by name and value, by value, or the first similar one."""
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
    if style == "3spo":
        return f"<action>{command}</action>"
    if style == "steppo":
        return write_response("", [ToolCall(ENV_STEP.name, {"command": command})])
    return command


def _expert(env: WebShopEnv, slips: Slips) -> Act:
    store, style = local_store(env.options.catalogue), env.options.prompt
    goal = find_goal(store, env.state.task_id)
    return lambda observation, hurried: in_style(expert_command(store, goal, env.state), style)


EXPERT = ScriptedPlayer(WebShopEnv, _expert, fixed={})


CATALOGUE = "small"


#: A property missing in the query, one of the results 2 to 5 instead of the first, buying at once for each option that
#: is not chosen, and a random option. About two purchases in five are right with these.
SLIPS = {"forgets_word": 0.25, "other_result": 0.25, "skips_option": 0.2, "wrong_option": 0.1}


def _begin(env: WebShopEnv, slips: Slips) -> Act:
    """Shop in the small catalog and the compact style; elsewhere the expert shops."""
    if (env.options.catalogue, env.options.prompt) != (CATALOGUE, "compact"):
        return _expert(env, slips)
    store = local_store(CATALOGUE)
    goal = find_goal(store, env.state.task_id)
    return lambda observation, hurried: _action(store, goal, env.state, slips)


def _action(store: Store, goal: Goal, state: ShopState, slips: Slips) -> str:
    page = state.turn.page
    if page.kind == SEARCH:
        *properties, kind = goal.name.split()
        words = [word for word in properties if not slips("forgets_word")]
        return f"search[ {' '.join([*words, kind])} ]"
    if page.kind == RESULTS:
        place = slips.rng.randint(2, min(5, len(page.items))) if slips("other_result") else 1
        return f"click[ {place} ]"
    assert page.kind == ITEM and page.product is not None
    product = store.product(state.turn.state.asin)
    assert product is not None
    # A wrong product may not have the wanted value: any other will do.
    wanted = wanted_options(product, goal)
    chosen = dict(state.turn.state.chosen)
    for axis, values in page.product.options.items():
        if axis not in chosen and not slips("skips_option"):
            value = wanted.get(axis, values[0])
            return f"click[ {slips.rng.choice(values) if slips('wrong_option') else value} ]"
    return "click[ buy now ]"


def words() -> list[str]:
    pages = ["page", "search", "results", "item", "done"]
    products = ["description", "features", "reviews", "no", ";", "is", "color", "size"]
    requests = ["buy", "under", "invalid", *COMPACT_PROBLEMS, "bought", "right", "wrong"]
    commands = ["search[", "click[", "]", "now", "back", "to", "next", "prev", "<", ">"]
    numbers = [str(number) for number in range(max(generated.SMALL_PRICES[1], 100) + 1)]
    language = [*generated.SMALL_KINDS, *generated.SMALL_PROPERTIES, *generated.SMALL_COLORS, *generated.SMALL_SIZES]
    return list(dict.fromkeys([*pages, *products, *requests, *commands, *numbers, *language]))


DEMONSTRATOR = ScriptedPlayer(WebShopEnv, _begin, SLIPS, fixed={})

STARTER = word_starter(
    DEMONSTRATOR,
    words,
    tags=(),
    max_tokens=512,
    training={"demonstrations": 4096, "iterations": 12},
    # It reads the pages of the small catalog only.
    defaults={
        "env.catalogue": CATALOGUE,
        "max_model_len": 384,
        "max_response_tokens": 12,
        "iterations": 40,
        "eval_episodes": 240,
    },
    expert=DEMONSTRATOR.flawless,
    version=2,  # its training tasks lack the test tasks' requests
)
