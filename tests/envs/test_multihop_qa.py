"""Multi-hop QA: scores, worlds, the episode, the players and the starter."""

from __future__ import annotations

import itertools
import json
import pickle
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from environments import outcome, with_keywords
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.algorithms import Settings
from rl_agents.envs import base
from rl_agents.envs.base import named_env
from rl_agents.envs.multihop_qa import MultihopQAOptions, demonstrations, world
from rl_agents.envs.multihop_qa.demonstrations import STARTER
from rl_agents.envs.multihop_qa.prompts import SEARCH
from rl_agents.envs.multihop_qa.scores import exact_match, f1, normalize
from rl_agents.envs.multihop_qa.tasks import find_source, open_world
from rl_agents.envs.multihop_qa.world import BY_NAME, Fact
from rl_agents.errors import InputError
from rl_agents.retrieval.bm25 import Analyzer
from rl_agents.rollout.prompting import solved_examples
from rl_agents.tools.calls import ToolCall, read_response, write_response

make = partial(named_env, "multihop_qa")
play = with_keywords("multihop_qa", demonstrations.EXPERT.play)
demonstrate = with_keywords("multihop_qa", STARTER.demonstrate)

SMALL = {"questions": "small", "prompt": "compact"}
STYLES = ("paper", "compact")
CHAIN, COMPARISON = "test/000/08", "test/000/14"  # three facts in turn; two at once


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Indexes of this module's own, so that no older one is read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_AGENTS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def searches(*queries: str) -> str:
    return write_response("", [ToolCall("search", {"query": query}) for query in queries])


# --- scores


@pytest.mark.parametrize(
    ("answer", "references", "exact", "overlap"),
    [
        ("The Beatles!", ["beatles"], 1.0, 1.0),
        ("an  Apple a day", ["apple day"], 1.0, 1.0),
        ("Ann", ["An n"], 0.0, 0.0),
        ("New York City", ["York"], 0.0, 0.5),  # P 1/3, R 1
        ("the cat sat", ["cat sat down there"], 0.0, 2 / 3),  # P 2/2, R 2/4
        ("a b b", ["b b b"], 0.0, 0.8),  # P 2/2 without the article, R 2/3
        ("yes", ["yes it is"], 0.0, 0.0),  # official: yes, no and noanswer are all or nothing
        ("no way", ["no"], 0.0, 0.0),
        ("Rome", ["Paris", "rome"], 1.0, 1.0),
        ("", ["x"], 0.0, 0.0),
        ("the", ["x"], 0.0, 0.0),
        ("", ["A"], 0.0, 0.0),  # a gold that normalizes to nothing
        ("!", ["The The"], 0.0, 0.0),
        ("an", ["A"], 0.0, 0.0),
        ("the  the", ["The The"], 1.0, 0.0),
        ("x", ["the"], 0.0, 0.0),
    ],
)
def test_scores_by_hand(answer: str, references: list[str], exact: float, overlap: float) -> None:
    assert exact_match(answer, references) == exact
    assert f1(answer, references) == pytest.approx(overlap)


def test_articles_are_whole_words() -> None:
    assert normalize("Theatre an-other, A. The") == "theatre another"


# --- worlds


@pytest.mark.parametrize("setting", ["generated", "small"])
def test_answers_follow_from_the_facts(setting: str) -> None:
    for number in range(10):
        world = open_world(setting, f"train/{number:03d}")
        by_passage = {fact.passage_id: fact for fact in world.world.facts.values()}
        texts = {passage.id: f"{passage.title} {passage.text}" for passage in world.world.passages}
        assert len(texts) == len(world.world.passages)
        for question in world.questions:
            facts = [by_passage[name] for name in question.supporting]
            assert all(
                fact.subject in texts[fact.passage_id] and fact.object in texts[fact.passage_id] for fact in facts
            )
            if question.kind.startswith("bridge-") and question.kind != "bridge-earlier":
                assert len(facts) == int(question.kind[-1])
                assert all(a.object == b.subject for a, b in itertools.pairwise(facts))
                assert facts[0].subject in question.question and question.answers == (facts[-1].object,)
                assert not any(fact.object in question.question for fact in facts)
            elif question.kind == "same":
                assert question.answers == ("yes" if facts[0].object == facts[1].object else "no",)
            else:
                dated = facts[-2:]
                earlier = min(dated, key=lambda fact: int(fact.object))
                place = dated.index(earlier)
                assert question.answers == (facts[place].subject,)


def said(text: str, fact: Fact) -> set[str]:
    return {name for name in (fact.subject, fact.object) if name in text}


def test_names_are_told_apart_by_the_search() -> None:
    analyzer = Analyzer()
    for kind, count in (("person", 28), ("town", 14), ("surname", 240), ("river", 60)):
        used = world.invented(kind)[:count]
        assert len({tuple(analyzer.terms(name)) for name in used}) == count
    small = [name for kind in ("person", "town", "surname", "river") for name in world.invented(kind)[:20]]
    assert len(set(small)) == len(small)
    assert not set(small) & set(BY_NAME)


def test_worlds_differ_and_do_not_share_facts() -> None:
    first, second = (open_world("generated", name).world for name in ("train/000", "test/000"))
    assert {p.text for p in first.passages} != {p.text for p in second.passages}
    shared = {p.text for p in first.passages} & {p.text for p in second.passages}
    assert len(shared) < 0.05 * len(first.passages)


@pytest.mark.parametrize("setting", ["generated", "small"])
def test_the_expert_answers_nearly_everything(setting: str) -> None:
    ids = base.task_ids("multihop_qa", "test", {"questions": setting})[::3]
    assert sum(play(task_id, questions=setting)[1]["success"] for task_id in ids) >= 0.99 * len(ids)


def test_without_searching_there_is_nothing_to_know() -> None:
    dialogue, info = play(CHAIN, max_turns=1)
    assert (len(dialogue), info["success"], dialogue[0][1]) == (1, False, "<answer>unknown</answer>")


# --- the episode


def test_an_episode_in_the_papers_style() -> None:
    env = make()
    question, info = env.reset(options={"task_id": COMPARISON})
    assert [message["role"] for message in info["messages"]] == ["system", "user"]
    assert info["messages"][1]["content"] == question and info["tools"] == [SEARCH.to_openai()]
    assert "up to 4 times" in info["messages"][0]["content"] and "5 turns" in info["messages"][0]["content"]
    task = find_source(MultihopQAOptions()).task(COMPARISON).question
    observation, reward, terminated, _, info = env.step(f"<think>two</think>\n{searches(*task.plan[0])}")
    assert observation.count("<tool_response>") == 2 and observation.endswith("4 of 5 turns left.")
    assert (reward, terminated, info["valid"], info["progress"]) == (0.0, False, True, True)
    assert info["query"] == " ; ".join(task.plan[0])
    assert (info["metrics"]["searches"], info["metrics"]["support_found"]) == (2.0, 1.0)
    again, *_, info = env.step(searches(task.plan[0][0]))
    assert again.count("(shown before)") == 3 and info["progress"] is False and info["valid"]
    assert info["metrics"]["repeated_searches"] == 1.0
    observation, reward, terminated, truncated, info = env.step(f"<answer> the {task.answers[0]}. </answer>")
    assert (observation, reward, terminated, truncated, info["success"]) == ("correct", 1.0, True, False, True)
    assert info["references"] == list(task.answers) and info["progress"] is True
    with pytest.raises(RuntimeError, match="without a running episode"):
        env.step("x")


def test_an_episode_ends_with_its_turns() -> None:
    env = make()
    env.reset(options={"task_id": CHAIN})
    for turn in range(5):
        observation, reward, terminated, truncated, info = env.step(searches(f"town {turn}"))
        assert (reward, terminated, truncated) == (0.0, False, turn == 4)
        assert (turn == 3) == ("This is your last turn" in observation)
    assert info["metrics"]["answered"] == 0.0 and not info["success"]


def test_only_four_calls_of_a_turn_are_run() -> None:
    env = make()
    env.reset(options={"task_id": CHAIN})
    observation, *_, info = env.step(searches("zzz", "born", "river", "book", "emblem", "town"))
    assert info["metrics"]["searches"] == 4.0 and not info["valid"]
    assert observation.count("only the first 4 of 6 calls") == 2
    assert observation.startswith("<tool_response>\nNothing was found")


@pytest.mark.parametrize(
    ("response", "told"),
    [
        ('<tool_call>{"name": "search", "arguments": {"q": "x"}}</tool_call>', "do not fit its schema"),
        ('<tool_call>{"name": "search", "arguments": {"query": ""}}</tool_call>', "do not fit its schema"),
        ('<tool_call>{"name": "find", "arguments": {"query": "x"}}</tool_call>', "there is no tool 'find'"),
        ("<tool_call>{</tool_call>", "not JSON"),
        ('<tool_call>{"name": "search"', "without its </tool_call>"),
        ("nothing at all", "neither a tool call nor <answer>"),
        (searches("x") + "<answer>y</answer>", "tool calls and an answer in one turn"),
        ("<answer>a</answer><answer>b</answer>", "more than one <answer>"),
    ],
)
def test_what_is_wrong_is_told(response: str, told: str) -> None:
    env = make()
    env.reset(options={"task_id": CHAIN})
    observation, reward, terminated, truncated, info = env.step(response)
    assert told in observation and "4 of 5 turns left" in observation
    assert (reward, terminated, truncated, info["valid"], info["progress"]) == (0.0, False, False, False, None)
    assert info["metrics"]["invalid_actions"] == 1.0
    assert told in env.render_window("q", (), observation)
    compact = make(questions="small", prompt="compact")
    compact.reset(options={"task_id": "test/000/00"})
    observation, _, terminated, *_ = compact.step(response)
    assert "invalid" in observation and told not in observation
    assert not terminated


def test_half_right_answers_earn_f1_where_it_is_asked_for() -> None:
    env = make(reward="f1")
    env.reset(options={"task_id": CHAIN})
    answer = env.state.task.question.answers[0]
    _, reward, *_, info = env.step(f"<answer>{answer} perhaps</answer>")
    assert 0.0 < reward == info["metrics"]["f1"] < 1.0 and not info["success"] and info["metrics"]["em"] == 0.0


def test_a_prompt_of_one_step_holds_everything_found() -> None:
    env = make()
    question, _ = env.reset(options={"task_id": CHAIN})
    first, second = find_source(MultihopQAOptions()).task(CHAIN).question.plan[:2]
    env.step(searches(*first))
    observation, *_ = env.step(searches(*second))
    prompt = env.render_window(question, (), observation)
    assert all(f"- {query}" in prompt for query in (*first, *second)) and prompt.count(question) == 1
    store = env.state.task.store
    assert len(env.state.seen) >= 4 and all(store.get(name).text in prompt for name in env.state.seen)
    assert '"name": "search"' in prompt and prompt.endswith("3 of 5 turns left.")
    compact = make(prompt="compact", questions="small")
    question, _ = compact.reset(options={"task_id": "test/000/00"})
    compact.step(searches("teacher"))
    assert compact.render_window(question, (), "").startswith(f"{question} ")


def test_long_passages_are_cut_and_results_bounded(tmp_path: Path) -> None:
    record = {"question": "q?", "answer": "x", "passages": [{"title": "T" * 400, "text": "word " * 5000}]}
    path = tmp_path / "q.jsonl"
    path.write_text(f"{json.dumps(record)}\n{json.dumps({**record, 'id': 'b'})}")
    env = make(questions=str(path), hits=20)
    env.reset(seed=0)
    observation, *_ = env.step(searches(*["word"] * 16))
    assert "[...]" in observation and len(observation) < 4 * 20 * 2000


def test_snapshots_and_pickles() -> None:
    env = make()
    env.reset(options={"task_id": CHAIN})
    plan = env.state.task.question.plan
    env.step(searches(*plan[0]))
    saved = env.snapshot()
    first = env.step(searches(*plan[1]))
    env.restore(saved)
    assert env.step(searches(*plan[1])) == first
    assert pickle.loads(pickle.dumps(env.reset(options={"task_id": CHAIN})))[0] == env.state.task.question.question


HOSTILE = st.text(max_size=300) | st.sampled_from(
    [
        '" OR 1=1 --', "NEAR(a b, 2)", "title:x*", "</tool_response><tool_response>", "\ud800\0", "x" * 600,
        "</tool_call><answer>yes</answer>", "猫 \u202e ünïcödé", "a" * 5000,
    ]
)  # fmt: skip


@given(st.lists(HOSTILE, max_size=6), st.sampled_from(STYLES), HOSTILE)
@settings(max_examples=60, deadline=None)
def test_no_query_and_no_answer_can_do_harm(queries: list[str], prompt: str, answer: str) -> None:
    env = FUZZED[prompt]
    env.reset(options={"task_id": CHAIN})
    for response in (searches(*queries), f"{answer}{searches(*queries)}", "\n".join(queries), answer):
        observation, reward, *_, info = env.step(response)
        assert len(observation) < 60_000 and reward == 0.0
        assert observation.count("<tool_response>") == observation.count("</tool_response>") <= 6
        json.dumps(info, ensure_ascii=False).encode(), observation.encode()
    env.step(f"<answer>{answer}</answer>")


@given(st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8) | st.none()), st.text(max_size=20))
@settings(max_examples=60, deadline=None)
def test_no_call_can_do_harm(arguments: dict[str, Any], name: str) -> None:
    env = FUZZED["paper"]
    env.reset(options={"task_id": CHAIN})
    for call in ({"name": name or "search", "arguments": arguments}, {"name": "search", "arguments": arguments}):
        observation, *_, info = env.step(f"<tool_call>{json.dumps(call)}</tool_call>")
        assert len(observation) < 60_000 and isinstance(info["valid"], bool)


FUZZED = {style: make(prompt=style) for style in STYLES}


def test_a_thousand_episodes_of_random_actions() -> None:
    env, rng = make(prompt="compact", questions="small"), random.Random(0)
    ids = base.task_ids("multihop_qa", "train", {"questions": "small"})
    kinds = [
        "", " \n", "x" * 5000, "猫\ud800\0", "<answer></answer>", "<tool_call>", "</think><tool_call>{}</tool_call>",
        "<answer>yes</answer><answer>no</answer>", "<tool_response>won</tool_response>", searches("river", "born"),
        searches(*["x"] * 40), '<tool_call>[[["search"]]]</tool_call>', "<answer>heron</answer>",
    ]  # fmt: skip
    for episode in range(1000):
        env.reset(options={"task_id": ids[episode % 500]})
        over = False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(rng.choice(kinds))
            assert len(observation) < 20_000 and reward in (0.0, 1.0)
            over = terminated or truncated


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": "papr"}, "env.prompt='papr': valid: paper, compact"),
        ({"retriever": "densee"}, "env.retriever='densee': valid: bm25, dense, hybrid"),
        ({"retriever": "hybrid"}, r"needs env\.retriever_model=DIR"),
        ({"hits": 0}, "env.hits=0: must be at least 1"),
        ({"questions": "smal"}, r"env\.questions=smal: no such file or folder; valid: generated, small"),
        (
            {"questions": "small", "passages": "x"},
            "'env.passages' has no effect without env.questions other than",
        ),
    ],
)
def test_wrong_options_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        make(**options).reset(seed=0)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["test/099/00", "test/000/99", "train/0/0", ""])
def test_unknown_tasks_are_named(name: str) -> None:
    with pytest.raises(InputError, match="unknown multihop_qa task"):
        make().reset(options={"task_id": name})


# --- players and starter


def test_the_demonstrator_is_mediocre_and_the_flawless_one_is_not() -> None:
    ids = base.task_ids("multihop_qa", "test", {"questions": "small"})[::2]

    def success(habits: demonstrations.Habits) -> float:
        shots = {name: demonstrate(name, random.Random(name), habits=habits, **SMALL) for name in ids}
        return sum(outcome("multihop_qa", name, shot, **SMALL)["success"] for name, shot in shots.items()) / len(ids)

    assert 0.35 < success(demonstrations.Habits()) < 0.6
    assert success(demonstrations.FLAWLESS) >= 0.99


def test_the_starter_knows_every_word_and_writes_calls_that_parse() -> None:
    tokenizer = STARTER.build_tokenizer()
    longest = 0
    for name in base.task_ids("multihop_qa", "train", {"questions": "small"})[::40]:
        dialogue = demonstrate(name, random.Random(name), **SMALL)
        for observation, action in dialogue:
            ids = tokenizer.encode(action)
            assert tokenizer.unk_token_id not in [*tokenizer.encode(observation), *ids]
            written_ = tokenizer.decode(ids)
            assert [call.arguments for call in read_response(written_).calls] == [
                call.arguments for call in read_response(action).calls
            ]
            longest = max(longest, len(ids) + 1)
    assert longest <= STARTER.defaults["max_response_tokens"]
    told = make(questions="small", prompt="compact")
    told.reset(seed=0)
    for response in (
        "nonsense",
        searches("zzz"),
        searches("a", "b", "c", "d", "e"),
        '<tool_call>{"name":1}</tool_call>',
    ):
        observation, *_ = told.step(response)
        assert tokenizer.unk_token_id not in tokenizer.encode(observation), observation


def test_the_starters_model_is_small() -> None:
    tokenizer = STARTER.build_tokenizer()
    model = STARTER.build_model(tokenizer, 0)
    assert sum(weight.numel() for weight in model.parameters()) < 150_000


def test_the_experts_traces_fit_the_prompt() -> None:
    expert_play = with_keywords("multihop_qa", STARTER.expert)
    assert "<tool_call>\n" in expert_play(CHAIN, random.Random(0))[0][1]
    compact = expert_play("test/000/00", random.Random(0), **SMALL)
    assert demonstrations.CALL_BEGIN in compact[0][1]


def test_examples_for_prompting_are_in_the_style_of_the_run() -> None:
    keys = {"env": "multihop_qa", "prompting": "react", "prompting_shots": 2}
    shots = solved_examples(Settings.from_dict(keys), make)
    assert all("<tool_call>" in shot[0][1] and "turns left" in shot[1][0] for shot in shots)
    keys |= {f"env.{name}": value for name, value in SMALL.items()}
    shots = solved_examples(Settings.from_dict(keys), lambda: make(**SMALL))
    assert all(demonstrations.CALL_BEGIN in shot[0][1] for shot in shots)
