"""SituationPuzzles: rules by hand, our puzzles, the episode, the starter."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path

import gymnasium
import pytest
from environments import with_keywords
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout.stalls import fires_at

from rl_agents.envs import base
from rl_agents.envs.base import named_env
from rl_agents.envs.situation_puzzles import rules, tasks
from rl_agents.envs.situation_puzzles.demonstrations import STARTER, Habits, expert_action
from rl_agents.envs.situation_puzzles.env import SituationPuzzlesEnv
from rl_agents.envs.situation_puzzles.prompts import parse_action
from rl_agents.envs.situation_puzzles.rules import NO, NOT_A_QUESTION, UNKNOWN, YES, Fact, Puzzle, Reply, rule_reply
from rl_agents.envs.situation_puzzles.tasks import themes
from rl_agents.errors import InputError
from rl_agents.rewards.wording import FUNCTION_WORDS, stems

make = partial(named_env, "situation_puzzles")
task_ids = with_keywords("situation_puzzles", tasks.task_ids)
demonstrate = with_keywords("situation_puzzles", STARTER.demonstrate)

ROOT = Path(__file__).parents[2]
TASK = "lighthouse/0/raiders.pigeon.oath.reef"
SMALL = {key.removeprefix("env."): value for key, value in STARTER.defaults.items() if key.startswith("env.")}
SMALL_TASK = "museum/crown.weighed.loan"
STORY = "A ship full of raiders was looking for the harbour."


def started(task_id: str = TASK, **options: object) -> SituationPuzzlesEnv:
    env = make(**options)
    env.reset(options={"task_id": task_id})
    return env


def asked(env: SituationPuzzlesEnv, question: str) -> str:
    return env.step(f"<interact>{question}</interact>")[0]


# --- rules


def test_f1_by_hand() -> None:
    # {the, man, hid, a, key} and {a, key, was, hidden}: 2 * 2 / 9
    assert rules.f1_score("The man hid a key!", "a key, was hidden", "word") == pytest.approx(4 / 9)
    assert rules.f1_score("key key key", "key", "word") == pytest.approx(2 / 4)
    assert rules.f1_score("ab a", "ba c", "char") == pytest.approx(4 / 6)
    assert rules.f1_score("Don't", "dont", "word") == 1.0
    assert rules.f1_score("", "key", "word") == rules.f1_score("...", "...", "char") == 0.0
    with pytest.raises(ValueError, match="unknown unit 'letter': valid: word, char"):
        rules.f1_score("key", "key", "letter")


def test_similarity_by_hand() -> None:
    bell, thief = frozenset({"bell", "stolen"}), frozenset({"bell", "stolen", "thief", "night"})
    assert rules.similarity(bell, thief) == rules.similarity(thief, bell) == pytest.approx(2 / 3)
    assert rules.similarity(bell, bell) == 1.0
    assert rules.similarity(bell, frozenset()) == rules.similarity(frozenset(), frozenset()) == 0.0


def test_questions_that_yes_or_no_can_answer() -> None:
    assert rules.is_yes_no_question("Was he alone?") and rules.is_yes_no_question("raiders")
    for text in ("Why?", "what happened", "Tell me the story", "?!", ""):
        assert not rules.is_yes_no_question(text)


PUZZLE = Puzzle(
    "p",
    "surface",
    "bottom",
    (Fact((frozenset({"raider", "pirate"}),), True), Fact((frozenset({"plague"}),), False)),
    ("Was the bell stolen by a jealous rival?", "Did nobody hear the storm?"),
)


@pytest.mark.parametrize(
    ("question", "reply", "topics"),
    [
        ("Were there raiders?", YES, ("fact 0",)),
        ("Was it a PIRATE'S ship?", YES, ("fact 0",)),
        ("pirates", YES, ("fact 0",)),
        ("Was it the plague?", NO, ("fact 1",)),
        ("Wasn't it the plague?", YES, ("fact 1",)),
        ("Were there no raiders?", NO, ("fact 0",)),
        ("Raiders or the plague?", NO, ("fact 0", "fact 1")),
        ("Did a jealous rival steal the bell?", YES, ("key question 0",)),
        ("Did a jealous rival not steal the bell?", NO, ("key question 0",)),
        ("Did nobody hear the storm?", YES, ("key question 1",)),
        ("Did somebody hear the storm?", NO, ("key question 1",)),
        ("Was there a bell?", UNKNOWN, ()),
        ("Was it Tuesday?", UNKNOWN, ()),
        ("Who did it?", NOT_A_QUESTION, ()),
    ],
)
def test_the_rule_judge(question: str, reply: str, topics: tuple[str, ...]) -> None:
    assert rule_reply(PUZZLE, question, 0.5) == Reply(reply, topics)


def test_a_question_as_like_as_it_must_be_is_enough_and_turns_on_its_own_key_question() -> None:
    assert rule_reply(PUZZLE, "Was the bell stolen?", 2 / 3) == Reply(YES, ("key question 0",))
    assert rule_reply(PUZZLE, "Was the bell stolen?", 0.67) == Reply(UNKNOWN)
    longer = replace(PUZZLE, key_questions=(*PUZZLE.key_questions, "Did the keeper flee at night?"))
    assert rule_reply(longer, "Did nobody hear the storm?", 0.5) == Reply(YES, ("key question 1",))


def test_what_is_new() -> None:
    raiders = rule_reply(PUZZLE, "raiders?", 0.5)
    assert rules.is_new(raiders, "raiders?", [])
    assert not rules.is_new(rule_reply(PUZZLE, "pirates?", 0.5), "pirates?", [("raiders?", raiders)])
    assert rules.is_new(rule_reply(PUZZLE, "raiders or plague?", 0.5), "raiders or plague?", [("raiders?", raiders)])
    server = Reply(YES)
    assert not rules.is_new(server, "Is he the dead man?", [("Was the man dead?", server)])
    assert rules.is_new(server, "Is he the dead man?", [("Was the man alive?", server)])


# --- our puzzles


def test_another_process_sees_the_same_puzzles() -> None:
    script = (
        "from rl_agents.envs.base import make_env, task_ids;"
        "e = make_env('situation_puzzles', {});"
        "print([(e.reset(options={'task_id': t})[0], e.step('<interact>Was it fire?</interact>')[0])"
        " for t in task_ids('situation_puzzles', 'test', {})[:20]])"
    )
    env = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(ROOT)}
    output = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True).stdout
    played = output.strip()
    here = make()
    question = "<interact>Was it fire?</interact>"
    assert played == str(
        [(here.reset(options={"task_id": t})[0], here.step(question)[0]) for t in task_ids("test")[:20]]
    )


def test_values_of_a_theme_share_no_cue_and_the_surface_hides_them() -> None:
    for theme in themes().values():
        cues = {value: theme.cues(value) for slot in theme.slots for value in slot.values}
        assert len(cues) == 20 and set(dict(theme.also)) <= set(cues)
        for one, other in combinations(cues, 2):
            assert not cues[one] & cues[other], (theme.name, one, other)
        shown = stems(theme.surface + " " + " ".join(theme.given))
        assert all(not shown & words for words in cues.values()), (theme.name, shown)
        assert all(stem not in FUNCTION_WORDS for words in cues.values() for stem in words)
        assert all(sentence.endswith(".") and value for slot in theme.slots for value, sentence in slot.sentences)


def test_the_judge_knows_every_value_of_every_theme() -> None:
    for theme in themes().values():
        values = [slot.values[2] for slot in theme.slots]
        puzzle = tasks.find_puzzle(f"{theme.name}/1/{'.'.join(values)}")
        for slot in theme.slots:
            for value in slot.values:
                for word in theme.cues(value):
                    expected = YES if value in values else NO
                    assert rule_reply(puzzle, f"Does it have to do with {word}?", 0.5).text == expected


def test_generated_puzzles() -> None:
    puzzle = tasks.find_puzzle(TASK)
    assert puzzle.surface.startswith("For seven years the keeper") and puzzle.bottom.startswith(STORY)
    assert puzzle.slots == (("threat", "raiders"), ("warning", "pigeon"), ("motive", "oath"), ("outcome", "reef"))
    small = tasks.find_puzzle("lighthouse/raiders.pigeon.oath")
    assert puzzle.bottom.startswith(small.bottom) and len(small.facts) == 15


def test_demo_puzzles_answer_what_they_list() -> None:
    stored = json.loads(tasks.DEMO_FILE.read_text(encoding="utf-8"))
    assert len(stored) == 12 and len(task_ids("test", puzzles="demo")) == 4
    for name, entry in stored.items():
        puzzle = tasks.find_puzzle(f"demo/{name}")
        for kind, reply in (("yes", YES), ("no", NO)):
            for cues in entry[kind]:
                words = " ".join(group.split()[0] for group in cues.split("/"))
                assert not FUNCTION_WORDS & set(cues.replace("/", " ").split()), cues
                assert rule_reply(puzzle, f"Is it about {words}?", 0.5).text == reply, (name, cues)
        assert rule_reply(puzzle, "Is it about elephants?", 0.5).text == UNKNOWN


@pytest.mark.parametrize(
    ("task_id", "message"),
    [
        ("lighthouse/0/raiders.pigeon.oath.reefs", "did you mean"),
        ("lighthouse/4/raiders.pigeon.oath.reef", "unknown situation_puzzles task"),
        ("lighthouse/٠/raiders.pigeon.oath.reef", "unknown situation_puzzles task"),
        ("lighthouse/raiders.pigeon", "unknown situation_puzzles task"),
        ("lighthouse//raiders.pigeon.oath.reef", "unknown situation_puzzles task"),
        ("", "unknown situation_puzzles task"),
    ],
)
def test_unknown_tasks_are_named(task_id: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make().reset(options={"task_id": task_id})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"puzzles": "demos"}, "env.puzzles='demos': valid: cases, small, demo"),
        ({"prompt": "compakt"}, "env.prompt='compakt': valid: paper, compact"),
        ({"f1": "letter"}, "env.f1='letter': valid: word, char"),
        ({"progress": "news"}, "env.progress='news': valid: informative, new"),
        ({"bad_data": "drop"}, "env.bad_data='drop': valid: error, skip"),
        ({"success_threshold": 0.0}, "env.success_threshold=0.0: must be above 0"),
        ({"match": 2.0}, "env.match=2.0: must be at most 1"),
        ({"judge": "llm"}, "env.judge='llm': valid: rule, openai"),
        ({"judge": "openai"}, "env.judge=openai needs env.judge_url"),
        ({"judge": "openai", "judge_url": "http://x/v1"}, "needs env.judge_model"),
        ({"judge": "openai", "judge_url": "http://x/v1", "judge_model": "m", "judge_retries": -1}, "env.judge_retries"),
        ({"judge": "openai", "judge_url": "x", "judge_model": "m", "judge_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**options)


# --- episodes


@pytest.mark.parametrize(
    ("response", "kind", "content", "problem"),
    [
        ("<interact> Was it\n night? </interact>", "interact", "Was it\n night?", ""),
        ("<think><answer>x</answer></think><interact>Was it night?</interact>", "interact", "Was it night?", ""),
        ("<answer> He was blind. </answer>", "answer", "He was blind.", ""),
        ("<answer></answer>", "answer", "", ""),
        ("<interact> ?! </interact>", "malformed", "", "no-question"),
        (f"<interact>{'why ' * 400}</interact>", "malformed", "", "too-long"),
        ("Was it night?", "malformed", "", "no-action"),
        ("<interact>a</interact><interact>b</interact>", "malformed", "", "several-actions"),
    ],
)
def test_parsing(response: str, kind: str, content: str, problem: str) -> None:
    parsed = parse_action(response)
    assert (parsed.kind, parsed.content, parsed.problem) == (kind, content, problem)


def test_prompts() -> None:
    puzzle = tasks.find_puzzle(TASK)
    observation, info = make().reset(options={"task_id": TASK})
    assert "Ask me a yes-or-no question inside <interact> and </interact>." in observation
    assert observation.endswith(f"Puzzle: {puzzle.surface}")
    assert info["references"] == [puzzle.bottom] and info["anchor"] == f"{TASK} | "
    observation, info = make(**SMALL).reset(options={"task_id": SMALL_TASK})
    assert observation == "museum : object deed secret" and info["references"] == ["crown weighed loan"]
    observation, _ = make(prompt="compact").reset(options={"task_id": "demo/ladder"})
    assert observation == tasks.find_puzzle("demo/ladder").surface


def test_a_whole_episode() -> None:
    env = started()
    assert asked(env, "Were there raiders?") == "Yes"
    observation, reward, terminated, truncated, info = env.step("<interact>Was it the plague?</interact>")
    assert (observation, reward, terminated, truncated) == ("No", 0.0, False, False)
    assert info["progress"] is True and info["query"] == "Was it the plague?"
    *_, info = env.step("<interact>Did it rain?</interact>")
    assert info["progress"] is False
    observation, *_, info = env.step("<interact>Why was it dark?</interact>")
    assert observation.startswith("This is not a question") and info["progress"] is True  # only "Unknown" stalls
    observation, reward, terminated, _, info = env.step(f"<answer>{STORY}</answer>")
    expected = rules.f1_score(STORY, tasks.find_puzzle(TASK).bottom, "word")
    assert (observation, reward, terminated) == (f"f1 {expected:.2f}", expected, True) and 0.3 < expected < 0.9
    assert info["success"] is (expected >= 0.5)
    assert info["metrics"] == {
        "turns": 5.0, "questions": 4.0, "unknown_replies": 1.0, "repeated_questions": 0.0, "f1_word": expected,
        "f1_char": rules.f1_score(STORY, tasks.find_puzzle(TASK).bottom, "char"),
    }  # fmt: skip
    with pytest.raises(RuntimeError, match="reset"):
        env.step("")


def test_reward_units_and_threshold() -> None:
    answer = "<answer>crown weighed bribe</answer>"
    _, reward, _, _, info = started(SMALL_TASK, **SMALL).step(answer)
    assert reward == pytest.approx(2 / 3) and not info["success"]
    _, reward, _, _, info = started(SMALL_TASK, **{**SMALL, "success_threshold": 0.6}).step(answer)
    assert reward == pytest.approx(2 / 3) and info["success"]
    _, reward, _, _, info = started(SMALL_TASK, **SMALL, f1="char").step(answer)
    assert reward == info["metrics"]["f1_char"] != info["metrics"]["f1_word"]
    assert started(SMALL_TASK, **SMALL).step("<answer>crown weighed loan</answer>")[4]["success"]


def test_five_unknowns_in_a_row_are_t3s_condition() -> None:
    env = started()
    questions = ["Hm?", "Is it so?", "Was it the plague?", *(f"Is it thing {i}?" for i in range(5))]
    progress = [env.step(f"<interact>{q}</interact>")[4]["progress"] for q in questions]
    assert progress == [False, False, True, False, False, False, False, False]
    assert fires_at(progress, base.env_spec("situation_puzzles").progress_window) == 8


def test_softer_progress_needs_news() -> None:
    env = started(progress="new")
    questions = ["Was it the plague?", "Was the ship infected with plague?", "Were there raiders?"]
    assert [env.step(f"<interact>{q}</interact>")[4]["progress"] for q in questions] == [True, False, True]


def test_malformed_responses_are_told_what_is_wrong() -> None:
    env = started()
    observation, reward, terminated, truncated, info = env.step("<interact>?</interact>")
    assert "holds no words" in observation
    assert (reward, terminated, truncated, info["valid"], info["progress"]) == (0.0, False, False, False, None)
    assert started(SMALL_TASK, **SMALL).step("?")[0] == "invalid no-action"


@pytest.mark.parametrize("action", ["<interact>Was it night?</interact>", "?"])
def test_turn_limit_truncates(action: str) -> None:
    env = started()
    results = [env.step(action) for _ in range(15)]
    assert [r[3] for r in results] == [False] * 14 + [True]
    assert not any(r[2] for r in results) and sum(r[1] for r in results) == 0.0


def test_snapshot_and_restore() -> None:
    env = started()
    saved = env.snapshot()
    first = env.step("<interact>Was it the plague?</interact>")
    after = env.snapshot()
    env.step("<answer>x</answer>")
    env.restore(saved)
    assert env.step("<interact>Was it the plague?</interact>") == first
    other = make()
    other.restore(after)
    assert other.step("<answer>raiders</answer>")[4]["metrics"]["turns"] == 2.0


def test_anchors_meet_whatever_the_order_and_the_words() -> None:
    ends = []
    for questions in (["Were there raiders?", "Was it the plague?"], ["Was plague on board?", "Was it raiders?"]):
        env = started()
        ends.append([env.step(f"<interact>{q}</interact>")[4]["anchor"] for q in questions][-1])
    assert ends[0] == ends[1] == f"{TASK} | fact 0: Yes | fact 1: No"


def test_gymnasium_make_checker_and_registry() -> None:
    for options in ({}, SMALL, {"puzzles": "demo"}):
        check_env(make(**options), skip_render_check=True)
    env = gymnasium.make("rl_agents/SituationPuzzles-v0", prompt="compact")
    observation, _ = env.reset(seed=1)
    assert observation in env.observation_space
    spec = base.env_spec("situation_puzzles")
    assert isinstance(base.make_env("situation_puzzles", {}), SituationPuzzlesEnv)
    assert base.make_env("situation_puzzles", base.plain_options(spec.options())).reset(seed=3) == make().reset(seed=3)


ODD_ACTIONS = (
    "", "?", "<interact>", "<answer></answer>", "<interact>é\u0000\U0001f3ac ?</interact>", "<interact>Why?</interact>",
    "<interact>Was it raiders?</interact>", "<interact><answer>x</answer></interact>", "x" * 50_000, "<interact>" * 300,
    "<answer>" + "a b " * 15_000 + "</answer>", "<interact>" + "no not " * 100 + "</interact>", "\ud800",
    "<interact>\ud800 </interact>", "<think><interact>Is it?</interact>", "</think><interact>Is it?</interact>",
)  # fmt: skip


def test_a_thousand_random_episodes() -> None:
    rng = random.Random(0)
    envs = [make(), make(progress="new"), make(**SMALL), make(puzzles="demo", f1="char")]
    for episode in range(1000):
        env = envs[episode % len(envs)]
        env.reset(seed=episode)
        over, turns = False, 0
        while not over:
            noise = "".join(rng.choices("<>/interactanswer?é n't\n", k=rng.randrange(60)))
            observation, reward, terminated, truncated, info = env.step(rng.choice([*ODD_ACTIONS, noise]))
            turns += 1
            assert isinstance(observation, str) and 0.0 <= reward <= 1.0 and (info["valid"] or reward == 0)
            over = terminated or truncated
        assert turns <= 15


# --- expert, demonstrator and starter


def played(style: str, chosen: list[str], max_turns: int = 15, **options: object) -> list[float]:
    env, rewards = make(**options, max_turns=max_turns), []
    for task_id in chosen:
        env.reset(options={"task_id": task_id})
        over = False
        while not over:
            state = env.snapshot()
            assert state is not None
            _, reward, terminated, over, info = env.step(expert_action(state, style, max_turns))
            assert info["valid"] and info["progress"] is not False
            over = over or terminated
        rewards.append(reward)
    return rewards


def test_the_expert_finds_the_story() -> None:
    rewards = played("paper", task_ids("test"))
    assert sum(reward == 1.0 for reward in rewards) >= 90 and min(rewards) > 0.8
    assert played("compact", task_ids("test", puzzles="small"), **SMALL) == [1.0] * 100
    assert min(played("paper", task_ids("test")[:20], max_turns=2)) > 0.2  # it answers in time


def test_the_expert_needs_a_generated_puzzle() -> None:
    state = started("demo/ladder").snapshot()
    assert state is not None
    with pytest.raises(ValueError, match="demo/ladder has no theme"):
        expert_action(state)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(task_ids("train", puzzles="small")), st.integers(0, 9))
def test_demonstrations_can_be_played_and_tokenized(task_id: str, seed: int) -> None:
    dialogue = demonstrate(task_id, random.Random(seed), **SMALL)
    assert dialogue == demonstrate(task_id, random.Random(seed), **SMALL)
    env, words = started(task_id, **SMALL), set(STARTER.build_tokenizer().get_vocab())
    for observation, action in dialogue:
        assert set(observation.split()) | set(action.split()) <= words
        assert env.step(action)[4]["valid"]
    assert len(dialogue) == 15 or "<answer>" in dialogue[-1][1]


def test_demonstrator_is_beatable() -> None:
    chosen, rng = task_ids("train", puzzles="small"), random.Random(0)
    careful = Habits(premature_answer=0.0, repeat=0.0, enter_rut=0.0, hurried=0.0)
    shares = []
    for habits in (Habits(), careful):
        answers = {
            task_id: demonstrate(task_id, rng, habits=habits, **SMALL)[-1][1].split()[1:-1] for task_id in chosen
        }
        shares.append(sum(answers[t] == t.split("/")[1].split(".") for t in chosen) / len(chosen))
    assert 0.35 < shares[0] < 0.6 and shares[1] == 1.0


def test_starter_model_is_small_and_composed() -> None:
    tokenizer = STARTER.build_tokenizer()
    model = STARTER.build_model(tokenizer, 1)
    assert model.num_parameters() < 110_000
    rows = model.get_input_embeddings().weight
    values = {slot.name: slot.values for slot in themes()["museum"].slots[:3]}
    mean = {name: rows[tokenizer.convert_tokens_to_ids(list(words))].mean(0) for name, words in values.items()}
    crown = rows[tokenizer.convert_tokens_to_ids("crown")]
    assert crown @ mean["object"] > max(crown @ mean["deed"], crown @ mean["secret"])  # values share their slot's part
