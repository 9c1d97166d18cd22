"""The pivot environment: its tasks, its verdicts, and the chat that its dialogues begin with."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest
from episodes import play_episodes
from pivot.expert_traces import trace_tokenizer
from rollout.scripted import ScriptedEngine
from transformers import PreTrainedTokenizerFast

from rl_agents.chat.template import ChatTemplate, Dialogue, chat_text, make_context
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.envs.base import make_env, starter_spec, task_ids
from rl_agents.envs.pivot import PivotOptions
from rl_agents.envs.pivot.tasks import split_by_trace
from rl_agents.errors import InputError
from rl_agents.rewards.verifiers import VerifierOptions, assess, make_verifier
from rl_agents.rollout.env_calls import EnvFailure, read_reset
from rl_agents.rollout.turns import Limits
from rl_agents.traces.desk import ALL_REASONS, beginner_action, desk_record, desk_turns
from rl_agents.traces.store import write_turns
from rl_agents.traces.turns import Turn

CALL = next(turn for turn in desk_turns() if turn.calls and turn.calls[0].name == "cancel_order")


def step(turn_id: str, action: str, **options):
    env = make_env("pivot", options)
    env.reset(seed=0, options={"task_id": turn_id})
    return env.step(action)


def test_a_turn_begins_with_the_experts_state() -> None:
    observation, info = make_env("pivot", {}).reset(seed=0, options={"task_id": CALL.turn_id})
    assert observation == '[tool] {"status": "pending"}'
    assert info["messages"] == list(CALL.messages) and len(info["tools"]) == 4


def test_one_action_ends_the_episode_with_the_verifiers_score() -> None:
    observation, reward, terminated, truncated, info = step(CALL.turn_id, CALL.text)
    assert (reward, terminated, truncated, info["success"], info["valid"]) == (1.0, True, False, True, True)
    assert info["metrics"] == {"score": 1.0, "exact": 1.0, "judge_failed": 0.0}
    assert info["references"] == [CALL.text] and observation == "all calls match"
    group = next(group for group in ALL_REASONS if CALL.calls[0].arguments["reason"] in group)
    other = CALL.text.replace(group[0], group[1])
    assert step(CALL.turn_id, other)[1] == 1.0 and step(CALL.turn_id, other)[4]["metrics"]["exact"] == 0.0
    assert step(CALL.turn_id, other, verifier="exact")[1] == 0.0
    assert step(CALL.turn_id, "Done.")[1] == 0.0
    *_, info = step(CALL.turn_id, "<tool_call>{")
    assert not info["valid"] and not info["success"]
    env = make_env("pivot", {})
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("x")
    verifier = make_verifier(VerifierOptions())
    written = CALL.calls[0].arguments["reason"]
    for group in ALL_REASONS:
        for wording in group:
            verdict = assess(verifier, CALL, CALL.text.replace(written, wording))
            assert (verdict.score == 1.0) is (written in group), (written, wording)


def test_the_desk_is_the_same_everywhere_and_no_trace_in_both_sets() -> None:
    turns = {turn.turn_id: turn.trace_id for turn in desk_turns()}
    train, test = task_ids("pivot", "train", {}), task_ids("pivot", "test", {})
    assert len(train) + len(test) == len(turns) and not {turns[t] for t in train} & {turns[t] for t in test}
    assert 0.05 < len(test) / len(turns) < 0.15
    assert len(task_ids("pivot", "test", {"test_share": 0.5})) > len(test)
    both = split_by_trace(desk_turns()[:2], 0.5)
    assert both[0] == both[1], "one trace serves both"
    assert desk_record(3) == desk_record(3) and desk_record(3) != desk_record(3, seed=1)
    assert desk_turns()[0].turn_id == "d3c7a405d6167020" and len(desk_turns()) == 1196


def test_some_turns_of_a_file_are_split_as_all_are() -> None:
    everything = split_by_trace(desk_turns(), 0.2)
    for chosen in (desk_turns()[::7], desk_turns()[5:900:11]):
        for part, whole in zip(split_by_trace(chosen, 0.2), everything, strict=True):
            assert part and set(part) <= set(whole)


def test_trials_of_a_task_are_in_one_set() -> None:
    names = {turn.trace_id: f"{at // 4} (trial {at % 4})" for at, turn in enumerate(desk_turns())}
    turns = [replace(turn, trace_id=names[turn.trace_id]) for turn in desk_turns()]
    tasks = {turn.turn_id: turn.trace_id.split()[0] for turn in turns}
    train, test = ({tasks[turn] for turn in part} for part in split_by_trace(turns, 0.2))
    assert train and test and not train & test


def test_errors_for_people(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown pivot task"):
        step("nowhere", "x")
    with pytest.raises(InputError, match="no such file"):
        make_env("pivot", {"pivots": str(tmp_path / "none.parquet")})
    with pytest.raises(InputError, match=r"environment pivot 'env\.pivot': did you mean 'env\.pivots'"):
        make_env("pivot", {"pivot": "x"})
    with pytest.raises(InputError, match=r"env\.test_share=1"):
        make_env("pivot", {"test_share": 1})
    action = {"role": "assistant", "content": "<think>endless"}
    write_turns(tmp_path / "bad.parquet", [Turn("00", "t", 3, "f:9", CALL.messages, CALL.tools, action)])
    with pytest.raises(InputError, match="0 of 1 demonstrated actions score 1; not so f:9: turn 3: malformed"):
        task_ids("pivot", "train", {"pivots": str(tmp_path / "bad.parquet")})


def test_a_file_that_is_written_again_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "turns.parquet"
    for count in (20, 40):
        write_turns(path, desk_turns()[:count])
        ids = {split: task_ids("pivot", split, {"pivots": str(path)}) for split in ("train", "test")}
        assert len(ids["train"]) + len(ids["test"]) == count


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    texts = [message["content"] for turn in desk_turns()[:50] for message in turn.messages]
    return trace_tokenizer(texts, 2048)


def test_the_prompt_is_what_the_chat_template_writes(tokenizer) -> None:
    template = ChatTemplate(tokenizer)
    tools = [tool.to_openai() for tool in CALL.tools]
    ids = template.opening_chat(chat_text(CALL.messages, tools))
    whole = tokenizer.apply_chat_template(
        list(CALL.messages), tools=tools, tokenize=True, add_generation_prompt=True, return_dict=False
    )
    assert list(ids) == whole
    text = tokenizer.decode(ids)
    assert '"name": "cancel_order"' in text and text.endswith("<|im_start|>assistant\n")
    assert f"<|im_start|>assistant\n{desk_turns()[0].text[:30]}" in text, "calls stand in the state as they are written"


@pytest.mark.parametrize("context", ["append", "window(2)"])
def test_a_dialogue_goes_on_from_its_chat(tokenizer, context: str) -> None:
    policy = make_context(context, tokenizer)
    dialogue = Dialogue.start("state", chat_text(CALL.messages))
    prompt = policy.prompt(dialogue)
    assert prompt == list(policy.template.opening_chat(chat_text(CALL.messages)))
    response = [*tokenizer.encode("so be it"), policy.template.end_of_turn]
    following = policy.prompt(dialogue.after(prompt, response, "so be it", "and then?"))
    if context == "append":
        assert following[: len(prompt) + len(response)] == prompt + response
    assert "and then?" in tokenizer.decode(following)


def test_messages_that_are_none_end_the_episode() -> None:
    user = {"role": "user", "content": "x"}
    for messages, tools, problem in (
        ("hello", [], "info['messages'] is str 'hello', not a list of dicts"), ([3], [], "not a list of dicts"),
        ([{**user, "content": b"x"}], [], "is not JSON"), ([user], [float("nan")], "info['tools'] is list"),
        ([{**user, "content": "\ud800"}], [], "not valid Unicode"),
        ([{"role": "user", "text": "x"}], [], "without role, or without content"),
    ):  # fmt: skip
        with pytest.raises(EnvFailure, match="env_garbage") as caught:
            read_reset(("x", {"messages": messages, "tools": tools}))
        assert problem in str(caught.value)


def test_an_episode_reads_the_state_and_is_scored(tokenizer) -> None:
    engine = ScriptedEngine(tokenizer, lambda prompt: CALL.text)
    specs = [EpisodeSpec(CALL.turn_id, 0, member, member) for member in range(3)]
    limits = Limits(max_turns=1, max_response_tokens=200, max_model_len=2048)
    rollouts = asyncio.run(
        play_episodes(specs, lambda: make_env("pivot", {}), engine, make_context("append", tokenizer), limits)
    )
    for trajectory in rollouts.trajectories:
        (played,) = trajectory.steps
        assert (trajectory.success, trajectory.episode_return, trajectory.end_cause) == (True, 1.0, "terminated")
        assert tokenizer.decode(played.prompt_ids).count("<|im_start|>") == len(CALL.messages) + 1
        assert played.action == CALL.text


def test_the_starters_tokenizer_knows_every_word_and_loses_none() -> None:
    recipe = starter_spec("pivot")
    tokenizer = recipe.build_tokenizer()
    template = ChatTemplate(tokenizer)
    rng = random.Random(0)
    for turn in desk_turns()[::7]:
        ids = template.opening_chat(recipe.opening(turn.turn_id, PivotOptions()))
        assert tokenizer.unk_token_id not in ids and len(ids) + 40 <= recipe.defaults["max_model_len"]
        for text in (turn.text, beginner_action(turn, rng)):
            response = tokenizer.encode(text, add_special_tokens=False)
            assert template.decode(response) == text and len(response) < recipe.defaults["max_response_tokens"]


def test_demonstrations_are_the_beginners_or_the_files(tmp_path: Path) -> None:
    recipe, rng = starter_spec("pivot"), random.Random(0)
    verifier = make_verifier(VerifierOptions())
    acted = [turn for turn in desk_turns() if turn.calls and turn.calls[0].name != "move_order"]
    scores = [
        assess(verifier, turn, recipe.demonstrate(turn.turn_id, rng, PivotOptions())[0][1]).score for turn in acted
    ]
    assert 0.5 < sum(scores) / len(scores) < 0.75
    path = tmp_path / "turns.parquet"
    write_turns(path, acted[:5])
    assert recipe.demonstrate(acted[0].turn_id, rng, PivotOptions(pivots=str(path))) == [("", acted[0].text)]
