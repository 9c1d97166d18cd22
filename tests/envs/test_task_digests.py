"""The tasks of the built-in environments do not change: `task_digests.json` has the hashes of ids and texts."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from envs.alfworld.games import game_digest, generate_game
from envs.test_circuit_decoding import PAPER_SIZES
from envs.test_preference_estimation import PAPER_SETTINGS

from rl_agents.envs import paper_search, task_sets
from rl_agents.envs.alfworld import tasks as alfworld
from rl_agents.envs.alfworld.scenes import SIZES
from rl_agents.envs.base import task_ids
from rl_agents.envs.circuit_decoding import SizeKeys
from rl_agents.envs.circuit_decoding import tasks as circuits
from rl_agents.envs.guess_numbers import tasks as numbers
from rl_agents.envs.long_form_qa import tasks as questions
from rl_agents.envs.movie_recommendation import tasks as movies
from rl_agents.envs.multihop_qa import tasks as worlds
from rl_agents.envs.paper_search import tasks as papers
from rl_agents.envs.preference_estimation import tasks as preferences
from rl_agents.envs.situation_puzzles import tasks as puzzles
from rl_agents.envs.webshop import WebShopOptions
from rl_agents.envs.webshop import tasks as shopping
from rl_agents.errors import InputError

DIGESTS = json.loads(Path(__file__).with_name("task_digests.json").read_text(encoding="utf-8"))
SPLITS = ("train", "test")


def ids_digest(ids: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()


def circuit_digest(setting: SizeKeys, part: str) -> str:
    names = task_sets.numbered_ids(setting.size, part, circuits.SIZES)
    tasks = ((name, circuits.find_task(name)) for name in names)
    return ids_digest(f"{name}: {'; '.join(task.expressions)} = {task.hidden}" for name, task in tasks)


def preference_digest(setting: preferences.Setting, part: str) -> str:
    tasks = map(preferences.find_task, task_sets.numbered_ids(setting.name, part, preferences.SIZES))
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
    ids = {part: task_ids("guess_numbers", part, {}) for part in SPLITS}
    assert DIGESTS["guess_numbers"] == {part: ids_digest(ids[part]) for part in SPLITS}
    assert sorted(ids["train"] + ids["test"]) == sorted(numbers.all_tasks())


def test_circuit_decoding() -> None:
    digests = DIGESTS["circuit_decoding"]
    assert set(digests) == {f"{s.size}/{part}" for s in PAPER_SIZES for part in ("train", "test")}
    for setting in (SizeKeys(), SizeKeys(4, 10), SizeKeys(2, 30)):
        assert digests[f"{setting.size}/test"] == circuit_digest(setting, "test")
    assert digests["2-10/train"] == circuit_digest(SizeKeys(), "train")


def test_preference_estimation() -> None:
    digests = DIGESTS["preference_estimation"]
    settings = (*PAPER_SETTINGS, preferences.STARTER_SETTING)
    assert set(digests) == {f"{s.name}/{part}" for s in settings for part in ("train", "test")}
    for setting in settings:
        assert digests[f"{setting.name}/test"] == preference_digest(setting, "test")
    assert digests["5-10-11-uniform/train"] == preference_digest(preferences.Setting(), "train")


def test_movie_recommendation() -> None:
    ids = {part: [name.rpartition("/")[2] for name in task_ids("movie_recommendation", part, {})] for part in SPLITS}
    found = {part: ids_digest(ids[part]) for part in SPLITS}
    assert DIGESTS["movie_recommendation"] == found | {s.name: movie_digest(s) for s in movies.SIZES.values()}


@pytest.mark.parametrize("name", ["cases", "small"])
def test_situation_puzzles(name: str) -> None:
    ids = {part: task_ids("situation_puzzles", part, {"puzzles": name}) for part in SPLITS}
    assert (len(ids["train"]), len(ids["test"])) == (400, 100) and not set(ids["train"]) & set(ids["test"])
    assert {part: DIGESTS["situation_puzzles"][f"{name}/{part}"] for part in SPLITS} == {
        part: ids_digest(ids[part]) for part in SPLITS
    }
    assert DIGESTS["situation_puzzles"][f"{name}/contents"] == puzzle_digest(sorted(ids["train"] + ids["test"]))


def test_long_form_qa() -> None:
    digests = DIGESTS["long_form_qa"]
    for style in ("paper", "compact"):
        texts = (f"{p.id}|{p.title}|{p.text}" for p in questions.passages(style))
        assert digests[f"{style}/documents"] == ids_digest(texts)
        for part in questions.SIZES:
            tasks = (
                questions.find_task(task_id, None, style)
                for task_id in task_sets.numbered_ids("almanac", part, questions.SIZES)
            )
            said = (f"{t.task_id}|{t.question}|{'|'.join(t.points)}" for t in tasks)
            assert digests[f"{style}/{part}"] == ids_digest(said)


def test_multihop_qa() -> None:
    names = [(setting, part) for setting in worlds.WORLDS for part in SPLITS]
    assert [len(worlds.Worlds(name).ids(part)) for name, part in names] == [1600, 400, 4000, 400]
    assert DIGESTS["multihop_qa"] == {f"{name}/{part}": ids_digest(world_lines(name, part)) for name, part in names}


def test_paper_search() -> None:
    digests = DIGESTS["paper_search"]
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
    for name in ("generated", "small"):
        store, options = shopping.local_store(name), WebShopOptions(catalogue=name)
        for part in ("train", "test"):
            ids = shopping.task_ids(part, options)
            assert DIGESTS["webshop"][f"{name}/{part}"] == ids_digest(
                f"{i}: {shopping.find_goal(store, i)}" for i in ids
            )


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
        task_sets.without_tests(["a", "b"], ["c"], lambda name: "the same task")


@pytest.mark.parametrize("size", SIZES)
def test_alfworld(size: str) -> None:
    for part in alfworld.SETS:
        ids = alfworld.generated_tasks(size, part)
        assert DIGESTS["alfworld"][f"{size}/{part}"] == ids_digest(ids)
        games = [game_digest(generate_game(task))[:12] for task in ids]
        assert DIGESTS["alfworld"][f"{size}/{part}/games"] == ids_digest(games)
