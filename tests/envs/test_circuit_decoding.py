"""CircuitDecoding: rules on hand-worked cases, the frozen panels, the episode, players and the starter."""

from __future__ import annotations

import itertools
import random
from functools import partial

import pytest
import torch
from environments import outcome, with_keywords
from hypothesis import given, settings
from hypothesis import strategies as st
from random_episodes import check_memory
from rollout.stalls import fires_at

from rl_agents.envs import base
from rl_agents.envs.base import named_env
from rl_agents.envs.circuit_decoding import demonstrations, prompts, rules, tasks
from rl_agents.envs.circuit_decoding.demonstrations import STARTER, Habits
from rl_agents.envs.circuit_decoding.env import CircuitDecodingEnv
from rl_agents.errors import InputError

make = partial(named_env, "circuit_decoding")
task_ids = with_keywords("circuit_decoding", tasks.task_ids)
play = with_keywords("circuit_decoding", demonstrations.EXPERT.play)
demonstrate = with_keywords("circuit_decoding", STARTER.demonstrate)

TASK = "2-10/test/0000"


def won(task_id: str, dialogue: list[tuple[str, str]]) -> bool:
    return bool(outcome("circuit_decoding", task_id, dialogue, prompt="compact")["success"])


def started(task_id: str = TASK, **options: object) -> CircuitDecodingEnv:
    env = make(**options)
    env.reset(options={"task_id": task_id})
    return env


def solution(task_id: str = TASK) -> str:
    return ", ".join(str(position + 1) for position in tasks.find_task(task_id).hidden)


# --- rules


def evaluate(expression: str, bits: str) -> int:
    """An independent reading of an expression: substitute the inputs, then fold gates from the inside out."""
    for position, bit in enumerate(bits):
        expression = expression.replace(f"x{position}", bit)
    folds = {
        f"{a} {gate} {b}": str(int(result))
        for a, b in itertools.product("01", repeat=2)
        for gate, result in (("AND", a == b == "1"), ("OR", "1" in a + b))
    }
    folds |= {"NOT 0": "1", "NOT 1": "0", "(0)": "0", "(1)": "1"}
    while len(expression) > 1:
        shorter = expression
        for pattern, value in folds.items():
            outside_not = pattern.startswith(("NOT", "(")) or "NOT " not in shorter
            if outside_not or f"({pattern})" in shorter:
                shorter = shorter.replace(f"({pattern})" if f"({pattern})" in shorter else pattern, value)
        assert shorter != expression
        expression = shorter
    return int(expression)


def test_all_circuits_compute_the_table_that_they_are_listed_under() -> None:
    functions = rules.functions()
    assert len(functions) == 64 and sum(map(len, functions.values())) == 192
    assert "(x0 AND x1) OR x2" in functions["01010111"]
    assert "(NOT (x0 OR (NOT x1))) AND x2" in functions["00010000"]
    for table, circuits in functions.items():
        assert "0" in table and "1" in table
        for expression in circuits:
            assert [evaluate(expression, bits) for bits in rules.INPUTS] == [int(value) for value in table]
            assert all(expression.count(f"x{i}") == 1 for i in range(rules.NUM_INPUTS))


def test_survivors_by_hand() -> None:
    tables = ["00000001", "00010111", "01111111"]  # and, majority-like, or: distinct at 001, 011, 111
    assert rules.output(tables[1], "011") == 1 and rules.output(tables[0], "011") == 0
    assert rules.survivors(tables, 2, []) == ((0, 1, 2), (0, 1, 2))
    after = rules.survivors(tables, 2, [(0, "011", 1), (1, "011", 0), (0, "001", 1)])
    assert after == ((2,), (0,)) and rules.total(after) == 2
    assert rules.best_input(tables, (1, 2)) == "001"
    assert rules.best_query(tables, ((2,), (0, 1))) == (1, "011")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(rules.functions())), min_size=3, max_size=8, unique=True), st.data())
def test_the_hidden_circuit_survives_and_the_space_never_grows(tables: list[str], data: st.DataObject) -> None:
    hidden = data.draw(st.integers(0, len(tables) - 1))
    history: list[rules.Query] = []
    before = rules.survivors(tables, 1, history)
    for bits in data.draw(st.lists(st.sampled_from(rules.INPUTS), max_size=8)):
        history.append((0, bits, rules.output(tables[hidden], bits)))
        after = rules.survivors(tables, 1, history)
        assert hidden in after[0] and set(after[0]) <= set(before[0])
        assert rules.progresses(before, after) == (after != before)
        before = after
    everything = [(0, bits, rules.output(tables[hidden], bits)) for bits in rules.INPUTS]
    assert rules.survivors(tables, 1, everything) == ((hidden,),)


def test_the_papers_stall_example() -> None:
    decreases = [6, 0, 2, 0, 0, 0]
    progress = [amount > 0 for amount in decreases]
    assert fires_at(progress, base.env_spec("circuit_decoding").progress_window) == 6
    assert fires_at(progress, 3, "cumulative") == 5


# --- tasks


def test_settings_are_those_of_table_2() -> None:
    names = [setting.name for setting in tasks.PAPER_SETTINGS]
    assert names == ["2-10", "2-15", "2-20", "2-25", "2-30", "3-10", "4-10"]
    assert (len(task_ids("train")), len(task_ids("test"))) == (1000, 300)
    assert base.task_ids("circuit_decoding", "test", {"circuits": 4})[0] == "4-10/test/0000"


def test_sizes_are_mixed_in_equal_parts() -> None:
    mixed = task_ids("test", sizes="1-2, 2-6,3-10")
    assert mixed[:4] == ["1-2/test/0000", "2-6/test/0000", "3-10/test/0000", "1-2/test/0001"]
    assert set(mixed) == {name for size in ("1-2", "2-6", "3-10") for name in task_ids("test", sizes=[size])}
    assert len(mixed) == 900 and task_ids("test", sizes="2-10") == task_ids("test")
    env = make(sizes="1-2,2-6", prompt="compact")
    seen = {env.reset(seed=seed)[1]["task_id"].split("/")[0] for seed in range(20)}
    assert seen == {"1-2", "2-6"}


def test_train_and_test_share_no_instance() -> None:
    def instance(task_id: str) -> tuple[frozenset[str], tuple[str, ...]]:
        task = tasks.find_task(task_id)
        return frozenset(task.tables), tuple(task.tables[position] for position in task.hidden)

    train, test = ({instance(i) for i in task_ids(split)} for split in ("train", "test"))
    assert (len(train), len(test), len(train & test)) == (1000, 300, 0)


@pytest.mark.parametrize("setting", tasks.PAPER_SETTINGS, ids=lambda setting: setting.name)
def test_tasks_have_the_size_of_their_setting(setting: tasks.Setting) -> None:
    for task_id in task_ids("test", circuits=setting.circuits, candidates=setting.candidates)[::60]:
        task = tasks.find_task(task_id)
        assert len(set(task.tables)) == setting.candidates and len(set(task.hidden)) == setting.circuits
        for table, expression in zip(task.tables, task.expressions, strict=True):
            assert expression in rules.functions()[table]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"circuits": 0}, "env.circuits=0: must be at least 1"),
        ({"circuits": 2.5}, "env.circuits=2.5: must be a valid integer"),
        ({"circuits": 4, "candidates": 3}, "env.candidates=3: must be at least env.circuits=4"),
        ({"candidates": 65}, "env.candidates=65: must be at most 64"),
        ({"prompt": "compakt"}, "env.prompt='compakt': valid: paper, compact"),
        ({"reward": "em"}, "valid: exact, fraction"),
        ({"sizes": "1-2,two"}, "env.sizes: 'two' is no size"),
        ({"sizes": "1-2, 1-2"}, "sizes are needed, each once"),
        ({"sizes": []}, "sizes are needed"),
        ({"sizes": "4-3"}, "env.candidates=3: must be at least env.circuits=4"),
        ({"sizes": "9-10"}, "env.circuits=9: must be at most 8"),
        ({"sizes": "1-2", "circuits": 3}, "'env.circuits' has no effect without env.sizes=one"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**options)


@pytest.mark.parametrize("task_id", ["2-10/test/0300", "2-10/test/300", "2-99/test/0001", "2-10/val/0001", ""])
def test_unknown_tasks(task_id: str) -> None:
    with pytest.raises(InputError):
        make().reset(options={"task_id": task_id})


# --- parsing


@pytest.mark.parametrize(
    ("response", "kind", "content", "problem"),
    [
        ("<interact>A(1, 0, 1)</interact>", "interact", "A101", ""),
        ("<think>x</think> <interact> b ( 1,0,1 ) </interact>", "interact", "B101", ""),
        ("<interact>A 011</interact>", "interact", "A011", ""),
        ("<interact>B: 0 1 1</interact>", "interact", "B011", ""),
        ("<think><answer>1, 2</answer></think><interact>A(0,0,0)</interact>", "interact", "A000", ""),
        ("<answer> 13, 6 </answer>", "answer", "13, 6", ""),
        ("<answer></answer>", "answer", "", ""),
        ("A(1, 0, 1)", "malformed", "", "no-action"),
        ("<interact>A(1,0,1)</interact><interact>B(1,0,1)</interact>", "malformed", "", "several-actions"),
        ("<interact>A(1,0)</interact>", "malformed", "", "not-a-query"),
        ("<interact>A(1,0,1,1)</interact>", "malformed", "", "not-a-query"),
        ("<interact>A(1,0,2)</interact>", "malformed", "", "not-a-query"),
        ("<interact>A(1,0,1) B(1,0,1)</interact>", "malformed", "", "not-a-query"),
        ("<interact>A(١, 0, 1)</interact>", "malformed", "", "not-a-query"),
        ("<interact>" + "1 " * 4000 + "</interact>", "malformed", "", "not-a-query"),
        ("<interact>C(1,0,1)</interact>", "malformed", "", "unknown-circuit"),
    ],
)
def test_parsing(response: str, kind: str, content: str, problem: str) -> None:
    parsed = prompts.parse_action(response, tasks.find_task(TASK))
    assert (parsed.kind, parsed.content, parsed.problem) == (kind, content, problem)


@pytest.mark.parametrize(
    ("content", "chosen"),
    [
        ("3, 7", (2, 6)),
        (" 3 7 ", (2, 6)),
        ("3,11", (2, -1)),
        ("0, 03", (-1, -1)),
        ("3", ()),
        ("3, 7, 1", ()),
        ("A=3, B=7", (-1, -1)),
        ("", ()),
        ("3," * 9000, ()),
    ],
)
def test_reading_answers(content: str, chosen: tuple[int, ...]) -> None:
    assert prompts.read_answer(content, tasks.find_task(TASK), "paper") == chosen


# --- episodes


def test_prompts() -> None:
    task = tasks.find_task(TASK)
    observation, info = make().reset(options={"task_id": TASK})
    assert "- There are 2 circuits, labeled A, B." in observation
    assert f"\n1: {task.expressions[0]}\n" in observation and f"\n10: {task.expressions[9]}\n" in observation
    assert observation.endswith("Please start with your first query.")
    assert info["references"] == [solution()] and info["progress"] is None
    compact, _ = make(prompt="compact").reset(options={"task_id": TASK})
    assert compact == "A B : " + " ".join(sorted(task.tables))


def test_a_won_game() -> None:
    env, task = started(), tasks.find_task(TASK)
    table = task.tables[task.hidden[1]]
    observation, reward, terminated, truncated, info = env.step("<interact>B(1, 0, 1)</interact>")
    assert observation.startswith(f"The output of your latest query B(1, 0, 1): {table[0b101]}.")
    assert (reward, terminated, truncated, info["success"], info["progress"]) == (0.0, False, False, False, True)
    assert info["query"] == "B(1, 0, 1)"
    left = [str(i + 1) for i, candidate in enumerate(task.tables) if candidate[0b101] == table[0b101]]
    assert info["anchor"].endswith(f": A 1 2 3 4 5 6 7 8 9 10 | B {' '.join(left)}")
    assert info["metrics"] == {
        "turns": 1.0, "survivors": 10.0 + len(left), "wasted_queries": 0.0, "circuits_right": 0.0,
    }  # fmt: skip
    *_, info = env.step("<interact>B(1, 0, 1)</interact>")
    assert info["progress"] is False and info["metrics"]["wasted_queries"] == 1.0
    observation, reward, terminated, truncated, info = env.step(f"<answer>{solution()}</answer>")
    assert (observation, reward, terminated, truncated, info["success"]) == ("correct", 1.0, True, False, True)
    assert info["progress"] is True and info["metrics"]["circuits_right"] == 1.0
    with pytest.raises(RuntimeError, match="reset"):
        env.step("")


def test_rewards() -> None:
    first, second = solution().split(", ")
    half = f"<answer>{first}, {first}</answer>"
    assert started().step(half)[1] == 0.0
    _, reward, terminated, _, info = started(reward="fraction").step(half)
    assert (reward, terminated, info["success"]) == (0.5, True, False)
    assert started(reward="fraction").step(f"<answer>{second}, {first}</answer>")[1] == 0.0
    assert started(reward="fraction").step(f"<answer>{solution()}</answer>")[1] == 1.0
    for answer in ("", first, "none", f"{first}, {second}, {first}"):
        _, reward, terminated, _, info = started().step(f"<answer>{answer}</answer>")
        assert (reward, terminated, info["success"], info["valid"]) == (0.0, True, False, True)


def test_compact_answers_name_truth_tables() -> None:
    task = tasks.find_task(TASK)
    words = " ".join(task.tables[position] for position in task.hidden)
    assert started(prompt="compact").step(f"<answer> {words} </answer>")[1] == 1.0
    assert started(prompt="compact").step(f"<answer>{solution()}</answer>")[1] == 0.0
    env = started(prompt="compact")
    assert env.step("<interact> A 000 </interact>")[0] == task.tables[task.hidden[0]][0]
    assert env.step("?")[0] == "invalid no-action"


def test_malformed_responses_are_told_what_is_wrong() -> None:
    env = started()
    observation, reward, terminated, truncated, info = env.step("<interact>Z(1, 0, 1)\u202e</interact>")
    assert "not valid" in observation and "\u202e" not in observation and "Z" not in observation
    assert (reward, terminated, truncated, info["valid"], info["progress"]) == (0.0, False, False, False, None)
    assert info["metrics"]["turns"] == 1.0 and info["metrics"]["wasted_queries"] == 0.0


@pytest.mark.parametrize("action", ["<interact>A(0,0,0)</interact>", "?"])
def test_turn_limit_truncates(action: str) -> None:
    env = started()
    results = [env.step(action) for _ in range(10)]
    assert [r[3] for r in results] == [False] * 9 + [True]
    assert not any(r[2] for r in results) and sum(r[1] for r in results) == 0.0


def test_an_answer_on_the_last_turn_counts() -> None:
    env = started(max_turns=2)
    env.step("?")
    assert env.step(f"<answer>{solution()}</answer>")[1:4] == (1.0, True, False)


def test_snapshot_and_restore() -> None:
    env = started()
    saved = env.snapshot()
    first = env.step("<interact>A(0, 1, 1)</interact>")
    after = env.snapshot()
    env.step(f"<answer>{solution()}</answer>")
    env.restore(saved)
    assert env.step("<interact>A(0, 1, 1)</interact>") == first
    other = make()
    other.restore(after)
    assert other.step(f"<answer>{solution()}</answer>")[1] == 1.0


def test_a_thousand_random_episodes_leave_no_memory_behind() -> None:
    env = make()
    pieces = [
        "<interact>",
        "</interact>",
        "<answer>",
        "</answer>",
        "</think>",
        "A(1, 0, 1)",
        "B 000",
        "3, 7",
        "é猫",
        "",
    ]
    check_memory(env, task_ids("train")[:20], pieces, 6)


# --- players and starter


def test_the_expert_wins_where_the_turns_suffice() -> None:
    assert all(play(task_id)[1]["success"] for task_id in task_ids("test")[::15])
    four = task_ids("test", circuits=4)[::30]
    assert sum(play(task_id, max_turns=20)[1]["success"] for task_id in four) == len(four)
    assert sum(play(task_id, max_turns=10)[1]["success"] for task_id in four) < len(four) / 2
    assert play(TASK, prompt="compact")[1]["success"]


def test_the_demonstrator_is_beatable_and_speaks_the_starters_words() -> None:
    rng, chosen = random.Random(0), task_ids("train")[::5]
    words = set(STARTER.build_tokenizer().get_vocab())
    played = [(shot := demonstrate(task_id, rng), won(task_id, shot)) for task_id in chosen]
    assert 0.35 < sum(won for _, won in played) / len(played) < 0.65
    assert all(won(name, demonstrate(name, rng, habits=Habits(0.0, 0.0, 0.0))) for name in chosen[::10])
    for dialogue, _ in played:
        for observation, action in dialogue:
            assert set(observation.split()) | set(action.split()) <= words
            assert not observation.endswith("\n<answer>") or "<answer>" in action
    assert demonstrate(TASK, random.Random(1)) == demonstrate(TASK, random.Random(1))


def test_the_recipe_respects_the_options_and_fits_its_context() -> None:
    tokenizer = STARTER.build_tokenizer()
    dialogue = demonstrate("4-30/train/0000", random.Random(0), circuits=4, candidates=30, max_turns=12)
    assert dialogue[0][0].startswith("A B C D : ") and len(dialogue) <= 12
    assert tokenizer.unk_token_id not in tokenizer(" ".join(part for turn in dialogue for part in turn))["input_ids"]
    longest = max(
        len(tokenizer(action)["input_ids"]) + 1
        for seed, task_id in enumerate(task_ids("train")[:200])
        for _, action in demonstrate(task_id, random.Random(seed))
    )
    assert longest <= STARTER.defaults["max_response_tokens"]


def test_starter_model_is_small_and_composed() -> None:
    tokenizer = STARTER.build_tokenizer()
    model = STARTER.build_model(tokenizer, 1)
    assert model.num_parameters() < 110_000
    rows = model.get_input_embeddings().weight
    vectors = {table: rows[tokenizer.convert_tokens_to_ids(table)] for table in rules.functions()}
    change = {(table, flipped): vectors[flipped] - vectors[table] for table in vectors for flipped in vectors}
    by_outputs: dict[tuple[tuple[int, str, str], ...], list[torch.Tensor]] = {}
    for (table, flipped), difference in change.items():
        changed = tuple((i, a, b) for i, (a, b) in enumerate(zip(table, flipped, strict=True)) if a != b)
        by_outputs.setdefault(changed, []).append(difference)
    shared = [differences for differences in by_outputs.values() if len(differences) > 1]
    assert len(shared) > 10
    assert all(torch.allclose(group[0], other, atol=1e-5) for group in shared for other in group)
