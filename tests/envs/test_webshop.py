"""WebShop: pages, prompts, the episode, players, catalogs, stores and retrieval."""

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from environments import starts, with_keywords

from rl_agents.envs import base
from rl_agents.envs.webshop import demonstrations, generated, pages, tasks
from rl_agents.envs.webshop import store as store_writer
from rl_agents.envs.webshop.catalogue import find_catalogue
from rl_agents.envs.webshop.demonstrations import in_style
from rl_agents.envs.webshop.pages import Move, State, act, view
from rl_agents.envs.webshop.prompts import MAX_PAGE, problem_text, read_command, window
from rl_agents.envs.webshop.records import Instruction, Listing, goal_at, goal_count, product_from_record
from rl_agents.envs.webshop.store import Store
from rl_agents.envs.webshop.tasks import local_store
from rl_agents.errors import InputError

play = with_keywords("webshop", demonstrations.EXPERT.play)

STYLES = ("3spo", "steppo", "compact")
TASK = "human/00002"
started = starts("webshop", TASK, catalogue="small")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stores of this module's own, so that no older one is read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_AGENTS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def shop(cache: None) -> Store:
    return local_store("small")


def moved(shop: Store, state: State, *commands: str) -> Move:
    goal = tasks.find_goal(shop, TASK)
    move = Move(state)
    for command in commands:
        move = act(shop, goal, move.state, command)
    return move


def test_the_way_through_the_shop(shop: Store) -> None:
    state = State()
    assert view(shop, state).actions == ("search[<your query>]",)
    state = moved(shop, state, "search[kettle blue]").state
    page = view(shop, state)
    assert page.texts[:3] == ("Back to Search", "Page 1 (Total results: 50)", "Next >")
    assert (page.actions[:2], len(page.items)) == (("click[back to search]", "click[next >]"), 10)
    second = moved(shop, state, "click[next >]").state
    assert view(shop, second).texts[1:4] == ("Page 2 (Total results: 50)", "< Prev", "Next >")
    assert not {hit.asin for hit in view(shop, second).items} & {hit.asin for hit in page.items}
    assert moved(shop, second, "click[< Prev]").state == state
    last = moved(shop, state, *["click[Next >]"] * 4).state
    assert "click[next >]" not in view(shop, last).actions
    assert moved(shop, last, "click[Next >]").problem == pages.NOT_ON_PAGE
    item = moved(shop, second, f"click[{view(shop, second).items[3].asin}]").state
    assert moved(shop, item, "click[< prev]").state == second, "back to the page of results that it came from"
    for detail in pages.DETAILS:
        below = moved(shop, item, f"click[{detail}]").state
        assert view(shop, below).actions == ("click[back to search]", "click[< prev]")
        assert moved(shop, below, "click[< prev]").state == item == moved(shop, below, "click[back to item]").state
        assert moved(shop, below, "click[buy now]").problem == pages.NOT_ON_PAGE
    assert moved(shop, item, "click[back to search]").state == State()


def test_options_are_kept_until_the_product_is_left(shop: Store) -> None:
    product = next(entry.product for entry, _ in generated.small_entries() if "size" in entry.product.options)
    item = State(pages.ITEM, "x", 1, product.asin)
    red, blue = product.options["color"][:2]
    clicks = (f"click[{name}]" for name in (red, "small", blue, "features", "< prev"))
    chosen = moved(shop, item, *clicks).state
    assert dict(chosen.chosen) == {"size": "small", "color": blue}
    assert moved(shop, chosen, "click[< prev]").state.chosen == ()


def test_what_cannot_be_done_is_named(shop: Store) -> None:
    results = moved(shop, State(), "search[kettle]").state
    for state, command, problem in (
        (State(), "search[ ]", pages.EMPTY_QUERY),
        (State(), "click[search]", pages.NOT_ON_PAGE),
        (State(), "look around", pages.NOT_AN_ACTION),
        (State(), "search[x] and click[y", pages.NOT_AN_ACTION),
        (State(), "  Click[ Buy   Now ] ", pages.NOT_ON_PAGE),
        (State(pages.DONE), "search[x]", pages.NOT_AN_ACTION),
        (results, "search[mug]", pages.NO_SEARCH_BAR),
        (results, "click[buy now]", pages.NOT_ON_PAGE),
        (results, "click[S000000000]", pages.NOT_ON_PAGE),
    ):
        move = moved(shop, state, command)
        assert (move.problem, move.state) == (problem, state)


def test_everything_that_is_offered_can_be_done(shop: Store) -> None:
    rng = random.Random(0)
    state = State()
    for _ in range(600):
        actions = view(shop, state).actions
        command = rng.choice(actions).replace("<your query>", rng.choice(["red mug", "soft", "zzz", "rustic hat blue"]))
        move = moved(shop, state, command)
        assert not move.problem, (state, command)
        state = State() if move.score else move.state


def test_splits_of_generated_and_official_goals(shop: Store) -> None:
    train, test = (base.task_ids("webshop", split, {"catalogue": "small"}) for split in ("train", "test"))
    assert (len(train), len(test), set(train) & set(test)) == (465, 120, set())

    def ids(count: int, split: str) -> Sequence[str]:
        goals: Any = SimpleNamespace(goal_count=lambda kind: count)
        return tasks.split_ids(goals, split, "human", False)

    assert (len(ids(12_087, "train")), len(ids(12_087, "test"))) == (11_587, 500), "StepPO, B.1"
    assert ids(12_087, "train")[0] == "human/00500"
    assert (len(ids(1000, "train")), len(ids(1000, "test"))) == (800, 200)
    with pytest.raises(InputError, match=r"no synthetic goals; env\.goals=human has some"):
        tasks.split_ids(shop, "test", "synthetic", True)


@pytest.mark.parametrize(
    ("style", "response", "command", "problem"),
    [
        ("3spo", "<think>x</think><action>click[buy now]</action>", "click[buy now]", ""),
        ("3spo", "<think><action>search[a]</action></think> <action> search[b] </action>", "search[b]", ""),
        ("3spo", "search[a]", "", "no-action"),
        ("3spo", "<action>search[a]</action><action>search[a]</action>", "", "several-actions"),
        ("compact", "search[ red mug ]", "search[ red mug ]", ""),
        ("steppo", in_style("search[a]", "steppo"), "search[a]", ""),
        ("steppo", "search[a]", "", "no-action"),
        ("steppo", '<tool_call>{"name": "env_step", "arguments": {}}</tool_call>', "", "bad-call"),
    ],
)
def test_responses(shop: Store, style: str, response: str, command: str, problem: str) -> None:
    read = read_command(response, tasks.reply(shop, tasks.find_goal(shop, TASK), Move(State())).page, style)
    assert (read.command, read.problem) == (command, problem)
    assert bool(problem_text(read, problem, style)) == bool(problem)


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


def test_compact_pages_name_products_by_place_and_long_ones_are_cut(shop: Store) -> None:
    env = started(prompt="compact")
    seen, _, _, _, _ = env.step("search[ lightweight elegant kettle ]")
    assert seen.startswith("page results 1 1 lightweight elegant kettle ")
    third = env.snapshot().turn.page.items[2].asin
    assert env.step("click[ 3 ]")[4]["valid"] and env.snapshot().turn.state.asin == third
    assert env.step("click[ 3 ]")[0].startswith("invalid not-on-page page item ")
    turn = tasks.reply(shop, tasks.find_goal(shop, TASK), Move(State()))
    page = replace(turn.page, texts=("x" * 100_000,), actions=tuple(f"click[{n}]" for n in range(50_000)))
    for style in ("3spo", "steppo"):
        assert len(window(replace(turn, page=page), style, "", (), 0)) < 2 * MAX_PAGE + 3000


def test_rewards() -> None:
    env, asin = started(), tasks.find_goal(local_store("small"), TASK).asin
    for command in ("search[lightweight elegant kettle]", f"click[{asin}]", " Click[ Buy   Now ]"):
        _, reward, terminated, _, info = env.step(in_style(command, "3spo"))
    assert (reward, terminated, info["success"]) == (pytest.approx(3 / 5), True, False)
    assert (info["metrics"]["score_options"], info["metrics"]["bought"]) == (0.0, 1.0)
    dialogue, _ = play(TASK, catalogue="small", reward="success")
    env = started(reward="success")
    assert [env.step(action)[1] for _, action in dialogue][-1] == 10.0


def test_info_and_anchors() -> None:
    env = started()
    _, info = env.reset(options={"task_id": TASK})
    assert info["admissible_actions"] == ["search[<your query>]"] and info["task_id"] == TASK
    first = env.step("<action>search[kettle]</action>")[4]
    assert (first["query"], first["valid"]) == ("search[kettle]", True)
    env.step("<action>click[next >]</action>")
    assert env.step("<action>click[< prev]</action>")[4]["query"] == ""
    steppo = started(prompt="steppo")
    assert steppo.step(in_style(" search[kettle]", "steppo"))[4]["metrics"]["searches"] == 1.0
    other = started()
    other.step("<action>junk</action>")
    assert other.step("<action>search[kettle]</action>")[4]["anchor"] == first["anchor"]
    asin = env.snapshot().turn.page.items[0].asin
    item = env.step(f"<action>click[{asin}]</action>")[4]
    colors = ("red", "blue", "green", "black", "white", "grey", "pink", "orange")
    color = next(action for action in item["admissible_actions"] if action[6:-1] in colors)
    chosen = env.step(f"<action>{color}</action>")[4]
    assert chosen["anchor"] != item["anchor"], "the page looks the same, the state is another"


SHOP = 300


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    path = tmp_path_factory.mktemp("webshop") / "shop.sqlite"
    store_writer.build_store(path, generated.shop_entries(SHOP))
    return Store(path)


@pytest.mark.parametrize("text", ['"', "NEAR(a b, 5)", "lamp\0mug", "; DROP TABLE x; --", "\ud800 lamp"])
def test_query_syntax_is_only_text(store: Store, text: str) -> None:
    words = re.findall(r"[a-z0-9]+", text.encode("utf-8", "replace").decode().lower())
    assert store.search(text) == store.search(" ".join(words))
    assert store.products == store._db.execute("SELECT count(*) FROM products").fetchone()[0] == SHOP


def test_goals_follow_the_published_shuffle(store: Store) -> None:
    order = list(range(store.goal_count("human")))
    random.Random(233).shuffle(order)
    for number in (0, 1, SHOP - 1):
        assert store.goal("human", number) == goal_at(generated.shop_entry(order[number]), False, 0)
    with pytest.raises(IndexError, match=f"goal {SHOP} of {SHOP}"):
        store.goal("human", SHOP)


def test_synthetic_goals_are_all_combinations() -> None:
    record = {
        "asin": "B1", "name": "Mug", "full_description": "", "small_description": "x", "pricing": "$5", "category": "c",
        "query": " Mugs ", "product_category": "k", "customization_options": {"Size": [{"value": "S"}, {"value": "L"}],
        "Color": [{"value": "Red/Blue"}, {"value": "black "}], "Style": None},
    }  # fmt: skip
    product = product_from_record(record, ["easy clean"])
    assert product is not None and product.query == "mugs"
    assert product.options == {"size": ("s", "l"), "color": ("red | blue", "black")}
    entry = Listing(product, (Instruction("Find me mugs", ("easy clean",)), Instruction("none", (), ("s",))))
    assert (goal_count(entry, True), goal_count(entry, False)) == (4, 0)
    goals = [goal_at(entry, True, number) for number in range(4)]
    assert [dict(goal.options)["color"] + dict(goal.options)["size"] for goal in goals] == [
        "red | blues", "red | bluel", "blacks", "blackl",
    ]  # fmt: skip
    assert goals[0].instruction == "Find me mugs with color: red | blue, and size: s"
    assert len({goal.price_upper for goal in goals}) == 1


def official(folder: Path, items: object, attributes: object = None, human: object = None) -> Path:
    (folder / "items_shuffle_1000.json").write_text(json.dumps(items), encoding="utf-8")
    (folder / "items_ins_v2_1000.json").write_text(json.dumps(attributes or {}), encoding="utf-8")
    if human is not None:
        (folder / "items_human_ins.json").write_text(json.dumps(human), encoding="utf-8")
    return folder


def record(asin: str, **changes: object) -> dict[str, object]:
    plain = {
        "asin": asin, "name": f"Oak Chair {asin}", "full_description": "sturdy", "small_description": ["one", "two"],
        "pricing": "$19.99$27.99", "category": "garden", "query": "chairs", "product_category": "a › b",
        "customization_options": {"Color": [{"value": "Red"}]},
    }  # fmt: skip
    return {**plain, **changes}


def test_official_files_are_read(tmp_path: Path) -> None:
    items = [record("B1"), record("B1", name="again"), record("nan"), record("TOOLONGASIN"), record("B2", pricing=None)]
    wood = ["solid wood"]
    attributes = {"B1": {"attributes": wood, "instruction": "Find me chairs", "instruction_attributes": wood}}
    human = {"B2": [
        {"instruction": "i need a red chair.", "instruction_attributes": ["easy wash"], "instruction_options": ["red"]},
        {"instruction": "nothing to check", "instruction_attributes": [], "instruction_options": []},
    ]}  # fmt: skip
    catalogue = find_catalogue(str(official(tmp_path, items, attributes, human)))
    store_writer.build_store(tmp_path / "out.sqlite", catalogue.entries())
    store = Store(tmp_path / "out.sqlite")
    assert (store.products, store.goal_count("human"), store.goal_count("synthetic")) == (2, 1, 1)
    first, second = store.product("B1"), store.product("B2")
    assert first is not None and second is not None
    assert (first.attributes, second.attributes) == (("solid wood",), ("DUMMY_ATTR",))
    assert (first.price_tag, second.price_tag, second.price) == ("$19.99 to $27.99", "$100.0", 100.0)
    goal = store.goal("human", 0)
    assert (goal.instruction, goal.options, goal.asin) == ("i need a red chair", ("red",), "B2")
    assert goal.price_upper == 140.0
    assert find_catalogue(str(tmp_path / "items_shuffle_1000.json")).fingerprint != ""


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([record("B1"), {"asin": "B2"}], "product 2 cannot be read: no 'small_description'"),
        ([record("B1", name=5)], "product 1 cannot be read: int where text is expected"),
        ({"items": 5}, "a value of an unexpected type"),
        ("text", "neither a JSON list nor a JSON object"),
    ],
)
def test_broken_official_files_are_named(tmp_path: Path, items: object, message: str) -> None:
    catalogue = find_catalogue(str(official(tmp_path, items)))
    with pytest.raises(InputError, match=re.escape(message)) as error:
        store_writer.build_store(tmp_path / "out.sqlite", catalogue.entries())
    assert "items_shuffle_1000.json" in str(error.value) and "\n" not in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items_ins_v2_1000.json", "items_shuffle_1000.json"]


def test_missing_catalogues_are_named_and_a_store_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, message in ((str(tmp_path / "none"), "valid: small, generated"), (str(tmp_path), "no items_shuffle")):
        with pytest.raises(InputError, match=re.escape(message)):
            find_catalogue(name)
    (tmp_path / "x.sqlite").write_bytes(b"no database at all, but long enough to be looked at" * 100)
    with pytest.raises(InputError, match="this product store is broken"):
        Store(tmp_path / "x.sqlite")
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path))
    path = find_catalogue("small").ensure_store()
    stamp = path.stat().st_mtime_ns
    assert find_catalogue("small").ensure_store() == path and path.stat().st_mtime_ns == stamp
    assert path.parent == tmp_path / "webshop"
