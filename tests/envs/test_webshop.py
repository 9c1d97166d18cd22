"""WebShop: pages, prompts, the episode, the expert, the demonstrator and the starter."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import gymnasium
import pytest
import torch
from environments import outcome, with_keywords
from hypothesis import given, settings
from hypothesis import strategies as st

import rl_agents.envs  # noqa: F401  (registers)
from rl_agents.envs import base
from rl_agents.envs.base import named_env
from rl_agents.envs.webshop import demonstrations, generated, pages, tasks
from rl_agents.envs.webshop.demonstrations import STARTER, in_style
from rl_agents.envs.webshop.env import WebShopEnv
from rl_agents.envs.webshop.pages import Move, State, act, split_command, view
from rl_agents.envs.webshop.prompts import MAX_PAGE, problem_text, read_command
from rl_agents.envs.webshop.tasks import LocalShop, local_shop
from rl_agents.errors import InputError

make = partial(named_env, "webshop")
play = with_keywords("webshop", demonstrations.EXPERT.play)
demonstrate = with_keywords("webshop", STARTER.demonstrate)

STYLES = ("3spo", "steppo", "compact")
TASK = "human/00002"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stores of this module's own, so that no older one is read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_AGENTS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def shop(cache: None) -> LocalShop:
    return local_shop("small")


def moved(shop: LocalShop, state: State, *commands: str) -> Move:
    goal = tasks.find_goal(shop.store, TASK)
    move = Move(state)
    for command in commands:
        move = act(shop.store, goal, move.state, command)
    return move


# --- pages


def test_the_way_through_the_shop(shop: LocalShop) -> None:
    state = State()
    assert view(shop.store, state).actions == ("search[<your query>]",)
    state = moved(shop, state, "search[kettle blue]").state
    page = view(shop.store, state)
    assert page.texts[:3] == ("Back to Search", "Page 1 (Total results: 50)", "Next >")
    assert (page.actions[:2], len(page.items)) == (("click[back to search]", "click[next >]"), 10)
    second = moved(shop, state, "click[next >]").state
    assert view(shop.store, second).texts[1:4] == ("Page 2 (Total results: 50)", "< Prev", "Next >")
    assert not {hit.asin for hit in view(shop.store, second).items} & {hit.asin for hit in page.items}
    assert moved(shop, second, "click[< Prev]").state == state
    last = moved(shop, state, *["click[Next >]"] * 4).state
    assert "click[next >]" not in view(shop.store, last).actions
    assert moved(shop, last, "click[Next >]").problem == pages.NOT_ON_PAGE
    item = moved(shop, second, f"click[{view(shop.store, second).items[3].asin}]").state
    assert moved(shop, item, "click[< prev]").state == second, "back to the page of results that it came from"
    for detail in pages.DETAILS:
        below = moved(shop, item, f"click[{detail}]").state
        assert view(shop.store, below).actions == ("click[back to search]", "click[< prev]")
        assert moved(shop, below, "click[< prev]").state == item == moved(shop, below, "click[back to item]").state
        assert moved(shop, below, "click[buy now]").problem == pages.NOT_ON_PAGE
    assert moved(shop, item, "click[back to search]").state == State()


def test_options_are_kept_until_the_product_is_left(shop: LocalShop) -> None:
    product = next(entry.product for entry, _ in generated.small_entries() if "size" in entry.product.options)
    item = State(pages.ITEM, "x", 1, product.asin)
    red, blue = product.options["color"][:2]
    chosen = moved(
        shop, item, f"click[{red}]", "click[small]", f"click[{blue}]", "click[features]", "click[< prev]"
    ).state
    assert dict(chosen.chosen) == {"size": "small", "color": blue}
    assert moved(shop, chosen, "click[< prev]").state.chosen == ()


def test_a_purchase_ends_the_session(shop: LocalShop) -> None:
    goal = tasks.find_goal(shop.store, TASK)
    move = moved(shop, State(pages.ITEM, "x", 1, goal.asin, (("color", "blue"), ("size", "medium"))), "click[Buy Now]")
    assert move.score is not None and move.score.reward == 1.0 and move.state.page == pages.DONE
    assert moved(shop, move.state, "search[x]").problem == pages.NOT_AN_ACTION


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("search[red shoes]", ("search", "red shoes")),
        ("  Click[ Buy   Now ] ", ("click", "Buy Now")),
        ("click[12 [a] x]", ("click", "12 [a] x")),
        ("search[]", ("search", "")),
        ("buy[x]", ("", "")),
        ("click buy now", ("", "")),
        ("search[x] and click[y", ("", "")),
        ("", ("", "")),
    ],
)
def test_commands(command: str, parts: tuple[str, str]) -> None:
    assert split_command(command) == parts


def test_what_cannot_be_done_is_named(shop: LocalShop) -> None:
    results = moved(shop, State(), "search[kettle]").state
    for state, command, problem in (
        (State(), "search[ ]", pages.EMPTY_QUERY),
        (State(), "click[search]", pages.NOT_ON_PAGE),
        (State(), "look around", pages.NOT_AN_ACTION),
        (results, "search[mug]", pages.NO_SEARCH_BAR),
        (results, "click[buy now]", pages.NOT_ON_PAGE),
        (results, "click[S000000000]", pages.NOT_ON_PAGE),
    ):
        move = moved(shop, state, command)
        assert (move.problem, move.state) == (problem, state)


def test_everything_that_is_offered_can_be_done(shop: LocalShop) -> None:
    rng = random.Random(0)
    state = State()
    for _ in range(600):
        actions = view(shop.store, state).actions
        command = rng.choice(actions).replace("<your query>", rng.choice(["red mug", "soft", "zzz", "rustic hat blue"]))
        move = moved(shop, state, command)
        assert not move.problem, (state, command)
        state = State() if move.score else move.state


# --- tasks


def test_splits_of_generated_and_official_goals(shop: LocalShop) -> None:
    train, test = (base.task_ids("webshop", split, {"catalogue": "small"}) for split in ("train", "test"))
    assert (len(train), len(test), set(train) & set(test)) == (480, 120, set())

    class Counted:
        def __init__(self, count: int) -> None:
            self.count = count

        def goal_count(self, kind: str) -> int:
            return self.count

    def sizes(count: int) -> dict[str, int]:
        return {split: len(tasks.split_ids(Counted(count), split, "human", False)) for split in tasks.SPLITS}  # type: ignore[arg-type]

    assert sizes(12_087) == {"train": 11_587, "train_after_eval": 10_587, "test": 500}, "StepPO, B.1"
    assert tasks.split_ids(Counted(12_087), "train", "human", False)[0] == "human/00500"  # type: ignore[arg-type]
    assert sizes(1000) == {"train": 800, "train_after_eval": 800, "test": 200}
    with pytest.raises(InputError, match=r"no synthetic goals; env\.goals=human has some"):
        shop.task_ids("test", "synthetic")


@pytest.mark.parametrize("name", ["human/99999", "human/2", "x/00001", "", "human/00002\n"])
def test_unknown_tasks_are_named(name: str) -> None:
    with pytest.raises(InputError, match="unknown webshop task"):
        make(catalogue="small").reset(options={"task_id": name})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": "2spo"}, "env.prompt='2spo': valid: 3spo, steppo, compact"),
        ({"goals": "humans"}, "env.goals='humans': valid: human, synthetic"),
        ({"reward": "succes"}, "env.reward='succes': valid: score, success"),
        ({"catalogue": "smal"}, "valid: small, generated"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**options)


def test_goals_do_not_depend_on_pythons_hash_seed() -> None:
    code = "from rl_agents.envs.webshop.generated import *; print([shop_entry(n) for n in range(5)], small_entry(3))"
    outputs = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, check=True
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1


# --- prompts


@pytest.mark.parametrize(
    ("style", "response", "command", "problem"),
    [
        ("3spo", "<think>x</think><action>click[buy now]</action>", "click[buy now]", ""),
        ("3spo", "<think><action>search[a]</action></think> <action> search[b] </action>", "search[b]", ""),
        ("3spo", "search[a]", "", "no-action"),
        ("3spo", "<action>search[a]</action><action>search[a]</action>", "", "several-actions"),
        ("compact", "search[ red mug ]", "search[ red mug ]", ""),
        ("compact", "  ", "", "no-action"),
        (
            "steppo",
            '<tool_call>{"name": "env_step", "arguments": {"command": "search[a]"}}</tool_call>',
            "search[a]",
            "",
        ),
        ("steppo", "search[a]", "", "no-action"),
        ("steppo", '<tool_call>{"name": "env_step", "arguments": {}}</tool_call>', "", "bad-call"),
        ("steppo", '<tool_call>{"name": "buy", "arguments": {"command": "x"}}</tool_call>', "", "bad-call"),
        ("steppo", "<tool_call>{</tool_call>", "", "bad-call"),
    ],
)
def test_responses(shop: LocalShop, style: str, response: str, command: str, problem: str) -> None:
    read = read_command(response, shop.reset(TASK).page, style)
    assert (read.command, read.problem) == (command, problem)
    assert bool(problem_text(read, problem, style)) == bool(problem)


def started(**options: object) -> WebShopEnv:
    env = make(catalogue="small", **options)
    env.reset(options={"task_id": TASK})
    return env


def test_the_prompt_of_3spo() -> None:
    env = started()
    first, _ = env.reset(options={"task_id": TASK})
    assert first.startswith(
        "You are an expert autonomous agent operating in the WebShop e-commerce environment.\nYour task is to: "
    )
    assert "and price lower than 70.00 dollars." in first and "['search[<your query>]']." in first
    assert env.render_window(first, (), first) == first
    actions = ["<think>a</think><action>search[blue kettle]</action>", "<action>click[no]</action>"]
    seen = [first, *(env.step(action)[0] for action in actions)]
    assert seen[1].startswith("Your current observation is: 'Back to Search' [SEP] 'Page 1 (Total results: 50)' [SEP] ")
    assert seen[2].startswith("Your current observation is: Invalid action: nothing of that name")
    text = env.render_window(first, tuple(zip(seen, actions, strict=False)), seen[2])
    assert "already taken 2 step(s). Below are the most recent 2 observations" in text
    assert "[Observation 1: ''Search'', Action 1: 'search[blue kettle]']" in text
    assert "[Observation 2: ''Back to Search' [SEP] 'Page 1" in text and "Action 2: 'click[no]']" in text
    assert "You are now at step 3 and your current observation is: Invalid action" in text
    assert text.count("Your admissible actions") == 1 and text.count("<action>") == 1


def test_the_prompt_of_steppo() -> None:
    env = started(prompt="steppo")
    first, _ = env.reset(options={"task_id": TASK})
    assert "Recent History\nNone\nAvailable Actions\nsearch[<your query>]\nInstructions" in first
    assert '"name": "env_step"' in first
    for command in ("search[kettle]", "click[{}]", "click[description]"):
        asin = env.snapshot().turn.page.items[0].asin if "{}" in command else ""
        seen = env.step(in_style(command.format(asin), "steppo"))[0]
    assert "Available Actions\nclick[back to search]\nclick[back to item]" in seen
    back = env.step(in_style("click[Back to Item]", "steppo"))
    assert back[4]["valid"] and "Buy Now" in back[0]


def test_compact_pages_name_products_by_place() -> None:
    env = started(prompt="compact")
    seen, _, _, _, _ = env.step("search[ lightweight elegant kettle ]")
    assert seen.startswith("page results 1 1 lightweight elegant kettle ")
    third = env.snapshot().turn.page.items[2].asin
    assert env.step("click[ 3 ]")[4]["valid"] and env.snapshot().turn.state.asin == third
    assert env.step("click[ 3 ]")[0].startswith("invalid not-on-page page item ")


def test_long_pages_are_cut() -> None:
    import dataclasses

    from rl_agents.envs.webshop.prompts import window

    turn = make(catalogue="small")._shop.reset(TASK)  # type: ignore[attr-defined]
    page = dataclasses.replace(turn.page, texts=("x" * 100_000,), actions=tuple(f"click[{n}]" for n in range(50_000)))
    for style in ("3spo", "steppo"):
        assert len(window(dataclasses.replace(turn, page=page), style, "", (), 0)) < 2 * MAX_PAGE + 3000


# --- episodes


@pytest.mark.parametrize("style", STYLES)
def test_the_expert_reaches_one(style: str) -> None:
    for task_id in base.task_ids("webshop", "test", {"catalogue": "small"})[:40]:
        _, info = play(task_id, catalogue="small", prompt=style)
        assert info["success"] and info["metrics"]["score"] == 1.0 and info["metrics"]["invalid_actions"] == 0


def test_the_expert_reaches_one_in_the_larger_catalogue() -> None:
    assert all(play(task_id)[1]["success"] for task_id in base.task_ids("webshop", "test", {})[:40])


def test_rewards() -> None:
    def bought(**options: object) -> tuple[float, bool, dict[str, float]]:
        env = started(**options)
        asin = tasks.find_goal(local_shop("small").store, TASK).asin
        for command in (
            "search[lightweight elegant kettle]",
            f"click[{asin}]",
            *options.pop("choose", ()),
            "click[buy now]",
        ):
            _, reward, terminated, _, info = env.step(in_style(command, "3spo"))
        assert terminated
        return reward, info["success"], info["metrics"]

    reward, success, metrics = bought()
    assert (reward, success, metrics["score_options"], metrics["bought"]) == (pytest.approx(3 / 5), False, 0.0, 1.0)
    assert bought(reward="success")[0] == 0.0
    dialogue, _ = play(TASK, catalogue="small", reward="success")
    env = started(reward="success")
    assert [env.step(action)[1] for _, action in dialogue][-1] == 10.0


def test_an_episode_ends_after_its_turns() -> None:
    env = started(max_turns=2)
    assert env.step("nothing")[2:4] == (False, False)
    _, reward, terminated, truncated, info = env.step("nothing")
    assert (reward, terminated, truncated, info["success"], info["metrics"]["invalid_actions"]) == (
        0.0,
        False,
        True,
        False,
        2.0,
    )
    with pytest.raises(RuntimeError, match="reset"):
        env.step("x")


def test_info_and_anchors() -> None:
    env = started()
    _, info = env.reset(options={"task_id": TASK})
    assert info["admissible_actions"] == ["search[<your query>]"] and info["task_id"] == TASK
    first = env.step("<action>search[kettle]</action>")[4]
    assert (first["query"], first["valid"]) == ("search[kettle]", True)
    other = started()
    other.step("<action>junk</action>")
    assert other.step("<action>search[kettle]</action>")[4]["anchor"] == first["anchor"]
    asin = env.snapshot().turn.page.items[0].asin
    item = env.step(f"<action>click[{asin}]</action>")[4]
    color = next(
        a
        for a in item["admissible_actions"]
        if a[6:-1] in ("red", "blue", "green", "black", "white", "grey", "pink", "orange")
    )
    chosen = env.step(f"<action>{color}</action>")[4]
    assert chosen["anchor"] != item["anchor"], "the page looks the same, the state is another"


def test_snapshots() -> None:
    env = started()
    env.step("<action>search[kettle]</action>")
    saved = pickle.loads(pickle.dumps(env.snapshot()))
    after = env.step("<action>click[next >]</action>")
    other = make(catalogue="small")
    other.restore(saved)
    assert other.step("<action>click[next >]</action>") == after
    env.restore(saved)
    assert env.step("<action>click[next >]</action>") == after


def test_reset_draws_train_tasks_by_seed() -> None:
    env = make(catalogue="small")
    drawn = [env.reset(seed=seed)[1]["task_id"] for seed in (1, 1, 2, 3)]
    assert drawn[0] == drawn[1] and len(set(drawn)) > 1
    assert set(drawn) <= set(base.task_ids("webshop", "train", {"catalogue": "small"}))
    assert gymnasium.make("rl_agents/WebShop-v0", catalogue="small").reset(seed=1)[1]["task_id"] == drawn[0]


COMMANDS = st.sampled_from(
    [
        "search[red mug]", "search[]", "click[buy now]", "click[back to search]", "click[< prev]", "click[next >]",
        "click[description]", "click[red]", "click[small]", "click[1]", "click[S000000000]", "click[s00000002z]",
        'search[" OR *]', "click[]", "[", "]", "search[" + "a" * 10_000 + "]",
    ]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(STYLES), st.lists(COMMANDS | st.text(max_size=80), max_size=14), st.booleans())
def test_fuzzed_responses(style: str, commands: list[str], wrapped: bool) -> None:
    env = started(prompt=style)
    for command in commands:
        observation, reward, terminated, truncated, info = env.step(in_style(command, style) if wrapped else command)
        assert len(observation) < 20_000 and 0.0 <= reward <= 1.0
        observation.encode()
        assert len(env.render_window("", ((observation, command),), observation)) < 40_000
        if terminated or truncated:
            assert terminated == bool(info["metrics"]["bought"])
            break


# --- starter


def test_the_demonstrator_is_mediocre() -> None:
    ids = base.task_ids("webshop", "train", {"catalogue": "small"})
    shots = {task_id: demonstrate(task_id, random.Random(task_id)) for task_id in ids[:300]}
    small = {"catalogue": "small", "prompt": "compact"}
    won = [outcome("webshop", task_id, shot, **small)["success"] for task_id, shot in shots.items()]
    assert 0.3 < sum(won) / len(won) < 0.5


def test_the_starter_knows_every_word() -> None:
    tokenizer = STARTER.build_tokenizer()
    vocabulary = tokenizer.get_vocab()
    for task_id in base.task_ids("webshop", "train", {"catalogue": "small"})[:60]:
        for observation, action in demonstrate(task_id, random.Random(task_id)):
            assert set(f"{observation} {action}".split()) <= set(vocabulary)
            assert tokenizer.decode(tokenizer.encode(action, add_special_tokens=False)) == action
    env = started(prompt="compact")
    texts = [
        env.step(a)[0]
        for a in (
            "x",
            "search[ ]",
            "search[ kettle ]",
            "click[ 1 ]",
            "click[ description ]",
            "click[ < prev ]",
            "click[ reviews ]",
        )
    ]
    assert set(" ".join(texts).split()) <= set(vocabulary)


def test_the_starter_is_small_and_reproducible() -> None:
    tokenizer = STARTER.build_tokenizer()
    first, second = STARTER.build_model(tokenizer, 0), STARTER.build_model(tokenizer, 0)
    assert sum(p.numel() for p in first.parameters()) < 300_000
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
