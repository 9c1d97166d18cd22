"""The frozen panels: their ids, and what every task of them says, are what their hashes are of."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from envs.alfworld.games import game_digest, generate_game
from envs.test_circuit_decoding import PAPER_SIZES
from envs.test_preference_estimation import PAPER_SETTINGS

from rl_agents.envs import panels, paper_search
from rl_agents.envs.alfworld.scenes import SIZES
from rl_agents.envs.base import task_ids
from rl_agents.envs.circuit_decoding import SizeKeys
from rl_agents.envs.circuit_decoding import tasks as circuits
from rl_agents.envs.guess_numbers import tasks as numbers
from rl_agents.envs.long_form_qa import tasks as questions
from rl_agents.envs.movie_recommendation import tasks as movies
from rl_agents.envs.multihop_qa import tasks as worlds
from rl_agents.envs.panels import ids_digest, shuffled_ids
from rl_agents.envs.paper_search import tasks as papers
from rl_agents.envs.preference_estimation import tasks as preferences
from rl_agents.envs.situation_puzzles import tasks as puzzles
from rl_agents.envs.webshop import WebShopOptions
from rl_agents.envs.webshop import tasks as shopping
from rl_agents.errors import InputError

ENVS = Path(panels.__file__).parent


def stored(name: str, file: str = "panel.json") -> dict[str, Any]:
    return json.loads((ENVS / name / file).read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def check_ids(panel: dict[str, Any]) -> None:
    assert panel["sha256"] == {split: ids_digest(panel[split]) for split in panel["sha256"]}


def split(ids: Iterable[str], seed: str, tests: int) -> dict[str, list[str]]:
    shuffled = shuffled_ids(ids, seed)
    return {"train": sorted(shuffled[tests:]), "test": sorted(shuffled[:tests])}


def circuit_digest(setting: SizeKeys, part: str) -> str:
    names = panels.numbered_ids(setting.size, part, circuits.SIZES)
    tasks = ((name, circuits.find_task(name)) for name in names)
    return ids_digest(f"{name}: {'; '.join(task.expressions)} = {task.hidden}" for name, task in tasks)


def preference_digest(setting: preferences.Setting, part: str) -> str:
    tasks = map(preferences.find_task, panels.numbered_ids(setting.name, part, preferences.SIZES))
    return ids_digest(f"{t.task_id}: {[movie.scores for movie in t.movies]} = {t.weights}" for t in tasks)


def movie_digest(size: movies.Size) -> str:
    tasks = [movies.find_task(f"{size.name}/{number:04d}") for number in range(movies.TASKS)]
    return ids_digest(
        f"{t.task_id} {t.weights} {[m.scores for m in t.seen]} {[m.scores for m in t.unseen]}" for t in tasks
    )


def puzzle_digest(ids: Iterable[str]) -> str:
    found = map(puzzles.find_puzzle, ids)
    return ids_digest(
        f"{p.surface}|{p.bottom}|{[([sorted(group) for group in fact.cues], fact.true) for fact in p.facts]}"
        for p in found
    )


def world_lines(setting: str, part: str) -> Iterator[str]:
    for number in range(worlds.WORLDS[setting][part]):
        world = worlds.open_world(setting, f"{part}/{number:03d}")
        yield from (f"{one.id}: {one.title}: {one.text}" for one in world.world.passages)
        yield from (f"{one.id}: {one.question} = {one.answers[0]} ({one.plan})" for one in world.questions)


def test_guess_numbers() -> None:
    panel = stored("guess_numbers")
    check_ids(panel)
    assert {name: panel[name] for name in ("train", "test")} == split(numbers.all_tasks(), panel["seed"], 382)
    assert panel["sha256"]["test"].startswith("6230266bbd00") and panel["sha256"]["train"].startswith("635264cbfd0e")


def test_circuit_decoding() -> None:
    digests = stored("circuit_decoding")["sha256"]
    assert set(digests) == {f"{s.size}/{part}" for s in PAPER_SIZES for part in ("train", "test")}
    for setting in (SizeKeys(), SizeKeys(4, 10), SizeKeys(2, 30)):
        assert digests[f"{setting.size}/test"] == circuit_digest(setting, "test")
    assert digests["2-10/train"] == circuit_digest(SizeKeys(), "train")
    assert digests["2-10/train"].startswith("8542746d1f32")


def test_preference_estimation() -> None:
    digests = stored("preference_estimation")["sha256"]
    settings = (*PAPER_SETTINGS, preferences.STARTER_SETTING)
    assert set(digests) == {f"{s.name}/{part}" for s in settings for part in ("train", "test")}
    for setting in settings:
        assert digests[f"{setting.name}/test"] == preference_digest(setting, "test")
    assert digests["5-10-11-uniform/train"] == preference_digest(preferences.Setting(), "train")


def test_movie_recommendation() -> None:
    panel = stored("movie_recommendation")
    check_ids(panel)
    names = [f"{number:04d}" for number in range(movies.TASKS)]
    assert {name: panel[name] for name in ("train", "test")} == split(names, panel["seed"], 300)
    assert panel["contents"] == {size.name: movie_digest(size) for size in movies.SIZES.values()}
    assert panel["sha256"]["test"].startswith("154c1e1bc7a9")


@pytest.mark.parametrize(("file", "contents"), [("panel.json", "7c460fecc032"), ("panel_small.json", "e0d20a7ff158")])
def test_situation_puzzles(file: str, contents: str) -> None:
    panel = stored("situation_puzzles", file)
    check_ids(panel)
    assert (len(panel["train"]), len(panel["test"])) == (400, 100) and not set(panel["train"]) & set(panel["test"])
    assert panel["contents"] == puzzle_digest(sorted(panel["train"] + panel["test"]))
    assert panel["contents"].startswith(contents)


def test_long_form_qa() -> None:
    digests = stored("long_form_qa")["sha256"]
    for style in ("paper", "compact"):
        texts = (f"{p.id}|{p.title}|{p.text}" for p in questions.passages(style))
        assert digests[f"{style}/documents"] == ids_digest(texts)
        for part in questions.SIZES:
            tasks = (
                questions.find_task(task_id, None, style)
                for task_id in panels.numbered_ids("almanac", part, questions.SIZES)
            )
            said = (f"{t.task_id}|{t.question}|{'|'.join(t.points)}" for t in tasks)
            assert digests[f"{style}/{part}"] == ids_digest(said)
    assert digests["paper/documents"].startswith("527316c128ed") and digests["paper/test"].startswith("69fc8839f22f")


def test_multihop_qa() -> None:
    panel = stored("multihop_qa")
    names = [(setting, part) for setting in worlds.WORLDS for part in ("train", "test")]
    assert panel["sizes"] == {f"{name}/{part}": len(worlds.Worlds(name).ids(part)) for name, part in names}
    assert panel["sha256"] == {f"{name}/{part}": ids_digest(world_lines(name, part)) for name, part in names}


def test_paper_search() -> None:
    digests = stored("paper_search")["sha256"]
    for name in ("generated", "small"):
        source = papers.find_papers(paper_search.PaperSearchOptions(papers=name))
        for part in ("train", "test"):
            tasks = map(source.task, source.task_ids(part))
            said = (f"{t.task_id}: {t.query} = {sorted(t.relevant)}" for t in tasks)
            assert digests[f"{name}/{part}"] == ids_digest(said)
    small = (paper for number in range(papers.SMALL_LIBRARIES) for paper in papers._small_library(number))
    assert digests["small/papers"] == ids_digest(map(repr, small))
    assert digests["generated/papers"] == ids_digest(map(repr, papers._generated().papers))


def test_webshop() -> None:
    panel = stored("webshop")
    for name in ("generated", "small"):
        store, options = shopping.local_store(name), WebShopOptions(catalogue=name)
        for part in ("train", "test"):
            ids = shopping.task_ids(part, options)
            assert panel["sizes"][f"{name}/{part}"] == len(ids)
            assert panel["sha256"][f"{name}/{part}"] == ids_digest(f"{i}: {shopping.find_goal(store, i)}" for i in ids)


def circuit(name: str) -> Any:
    task = circuits.find_task(name)
    return sorted(task.tables), [task.tables[position] for position in task.hidden]


def preference(name: str) -> Any:
    task = preferences.find_task(name)
    return sorted(movie.scores for movie in task.movies), task.weights


def request(name: str) -> Any:
    goal = shopping.find_goal(shopping.local_store("small"), name)
    return goal.instruction, goal.price_upper


@pytest.mark.parametrize(
    ("name", "options", "content", "trained"),
    [
        ("circuit_decoding", {"circuits": 2, "candidates": 2}, circuit, 932),
        ("preference_estimation", {"attributes": 3, "levels": 5, "movies": 2, "sampling": "max"}, preference, 696),
        ("webshop", {"catalogue": "small"}, request, 465),
    ],
)
def test_no_training_task_of_a_small_setting_is_a_test_task(
    name: str, options: dict[str, Any], content: Any, trained: int
) -> None:
    train, test = ([repr(content(one)) for one in task_ids(name, part, options)] for part in ("train", "test"))
    assert len(train) == trained and not set(train) & set(test)


def test_a_setting_with_fewer_tasks_than_the_test_set_has_is_refused() -> None:
    with pytest.raises(InputError, match="all 2 training tasks of this size are test tasks, too"):
        panels.without_tests(["a", "b"], ["c"], lambda name: "the same task")


@pytest.mark.parametrize("size", SIZES)
def test_alfworld(size: str) -> None:
    panel = stored("alfworld", f"panel_{size}.json")
    check_ids(panel)
    for part in panel["sha256"]:
        assert [game_digest(generate_game(task))[:12] for task in panel[part]] == panel["games"][part]
