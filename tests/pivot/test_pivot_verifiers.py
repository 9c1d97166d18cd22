"""Verifiers: golden cases of the paper and of NeMo-Gym's rows, and what passes that exact matching refuses."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pivot.expert_traces import nemo, real_file, rows

from rl_agents.algorithms.pivotrl import exact_miss_rate
from rl_agents.chat.messages import assistant_message
from rl_agents.config.options import keys_of
from rl_agents.envs.base import env_spec, read_env_options
from rl_agents.errors import InputError
from rl_agents.rewards.judges import JudgeError
from rl_agents.rewards.verifiers import VERIFIERS, VerifierOptions, assess, exact_match, make_verifier, self_check
from rl_agents.rewards.verifiers.base import EquivalenceJudge
from rl_agents.rewards.verifiers.terminal import TerminalVerifier
from rl_agents.rewards.verifiers.tool_calls import DialogueVerifier, ToolCallVerifier, difference, matched_pairs
from rl_agents.tools.calls import ToolCall, read_tools, write_response
from rl_agents.traces.files import read_traces
from rl_agents.traces.turns import Extraction, Turn, extract_turns, trace_turns

USER = ({"role": "user", "content": "please"},)


def turn(*calls: tuple[str, dict[str, Any]], content: str = "", tools: Any = (), harness: str = "") -> Turn:
    made = [ToolCall(name, arguments) for name, arguments in calls]
    action = assistant_message(content, made, [str(i) for i in range(len(made))])
    return Turn("00", "t", 0, "f:1", USER, read_tools(tools) if tools else (), action, harness)


def said(*calls: tuple[str, dict[str, Any]], content: str = "") -> str:
    return write_response(content, [ToolCall(name, arguments) for name, arguments in calls])


def score(name: str, demonstrated: Turn, response: str, **options: Any) -> float:
    return assess(make_verifier(VerifierOptions(verifier=name, **options)), demonstrated, response).score


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ({"a": 1}, {"a": 1}, True), ({"a": 1}, {"a": 2}, False), ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"a": True}, False), ({"a": 1.0}, {"a": 1.0000005}, True), ({"a": 1.0}, {"a": 1.00001}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False), ({"a": 1, "b": 2}, {"a": 1}, False), ([1, 2], [2, 1], False),
        ([1, 2], [1], False), ({"a": [{"b": "x"}]}, {"a": [{"b": "y"}]}, False), ("Rome", "rome", False),
        ("Rome", "Rome Italy", False), ("weather in rome", "latest stock news", False),
        ("Population of Paris 2020", "paris population census 2020", True),  # 0.375
        ("one two three four", "one two three four", True),  # 0.5
    ],
)  # fmt: skip
def test_recursive_comparison_at_the_search_threshold(expected: Any, actual: Any, same: bool) -> None:
    found = difference(expected, actual, 0.3)
    assert (found == "") is same


def test_a_threshold_of_zero_and_calls_in_any_order() -> None:
    assert difference("a b", "c d", 0.0) == ""
    for expected, actual in (("a", "b"), (1, 2), ({"x": "a b"}, {"y": "a b"}), ("a b", 3), ("a b", "c")):
        assert difference(expected, actual, 0.0) != ""
    # Greedy pairing would give 2 to the first and leave the second without.
    edges = {0: {"a", "b"}, 1: {"a"}, 2: {"c"}}
    assert matched_pairs([0, 1, 2], ["a", "b", "c"], lambda i, name: name in edges[i]) == 3
    assert matched_pairs([0, 1], ["a"], lambda i, name: name in edges[i]) == 1


ROME, OSLO = ("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})


def test_messages_and_calls_do_not_stand_for_each_other() -> None:
    for name in ("tool_name", "tool_call", "search"):
        assert score(name, turn(content="Which city?"), "Tell me the city.") == 1.0
        assert score(name, turn(ROME), "Which city?") == 0.0
        assert score(name, turn(content="Which city?"), said(ROME)) == 0.0
        for nothing in ("", "  ", "<think>so</think>", "<tool_call>{", "<think>endless"):
            assert score(name, turn(content="Which city?"), nothing) == score(name, turn(ROME), nothing) == 0.0


def test_tool_name_tool_call_and_search() -> None:
    assert score("tool_name", turn(ROME), said(OSLO)) == 1.0
    assert score("tool_call", turn(ROME), said(OSLO)) == 0.0
    assert score("tool_name", turn(ROME), said(("map", {"city": "Rome"}))) == 0.0
    assert score("tool_call", turn(ROME), f"<think>Oslo?</think>Let me see. {said(ROME)}") == 1.0
    assert score("tool_call", turn(ROME, OSLO), said(OSLO, ROME)) == 1.0
    assert score("tool_call", turn(ROME), said(OSLO, ROME)) == 0.0, "no surplus calls"
    assert score("tool_call", turn(ROME), said(OSLO, ROME), parallel="free") == 1.0
    assert score("tool_call", turn(ROME, OSLO), said(ROME), parallel="free") == 0.0, "no call is missing"
    query = turn(("find", {"q": "population of paris 2020"}))
    near, far = said(("find", {"q": "paris population census 2020"})), said(("find", {"q": "paris travel tips now"}))
    assert (score("tool_call", query, near), score("search", query, near)) == (1.0, 1.0)
    assert (score("tool_call", query, far), score("search", query, far)) == (1.0, 0.0)  # 1/8
    assert score("tool_call", query, far, threshold=0.2) == 0.0


def test_a_call_against_its_schema_scores_0_unless_the_demonstration_breaks_it_too() -> None:
    schema = {"type": "object", "properties": {"note": {"enum": ["all is well", "all went wrong"]}}}
    tools = [{"name": "report", "parameters": schema}]
    gold, odd = turn(("report", {"note": "all is well"}), tools=tools), said(("report", {"note": "well is well"}))
    assert score("tool_call", gold, said(("report", {"note": "all went wrong"}))) == 1.0
    assert score("tool_call", gold, odd) == 0.0
    assert score("tool_call", turn(("report", {"note": "all is fine"}), tools=tools), odd) == 1.0


#: A call in another order, without spaces.
CALL = '{"arguments":{"n":3,"q":"red shoes"},"name":"find"}'


def test_exact_matching_is_stricter_than_any_verifier() -> None:
    gold = turn(("find", {"q": "red shoes", "n": 3}), content="Let me look.")
    for text, same in (
        (gold.text, True),
        (f"<think>h</think>Let me  look.<tool_call>{CALL}</tool_call>", True),
        (said(("find", {"q": "red shoes", "n": 3})), False),
        (said(("find", {"q": "shoes red", "n": 3}), content="Let me look."), False),
        ("<tool_call>{", False),
    ):
        assert exact_match(gold, text) is same
        assert score("exact", gold, text) == float(same)
        assert not same or score("tool_call", gold, text) == 1.0
    # Of three acceptable actions one is the demonstration; what is not acceptable does not count.
    assert exact_miss_rate([1, 1, 1, 0, 0], [1, 0, 0, 0, 0]) == pytest.approx(2 / 3)
    assert exact_miss_rate([0, 0], [0, 0]) != exact_miss_rate([0, 0], [0, 0])


def test_commands_of_text_environments() -> None:
    query = turn(content="<think>words</think><action>search[long red mug]</action>")
    for response, wanted in (
        ("<action>search[red mug long]</action>", 1.0),
        ("<think>hm</think><action>Search[ red  mug ]</action>", 1.0),  # 2/(3 + 2)
        ("search[red mug long]", 1.0),
        ("<action>search[blue mug small]</action>", 0.0),  # 1/6
        ("<action>search[red]</action>", 0.0),
        ("<action>click[long red mug]</action>", 0.0),
        ("<action>search[long red mug]</action><action>click[1]</action>", 0.0),
        ("", 0.0),
    ):
        assert score("text_action", query, response) == wanted, response
    assert score("text_action", query, "search[red mug]", threshold=0.45) == 0.0
    click = turn(content="click[ long red mug ]")
    assert score("text_action", click, "click[long red mug]") == 1.0
    assert score("text_action", click, "click[red long mug]") == 0.0, "the name of another thing"
    assert score("text_action", turn(content="go to desk 1"), "Go to  desk 1") == 1.0
    assert score("text_action", turn(content="go to desk 1"), "go to desk 2") == 0.0
    assert score("text_action", turn(ROME), said(ROME)) == 1.0 and score("text_action", turn(ROME), "Rome") == 0.0


def terminus(*keystrokes: str, complete: bool = False, **further: Any) -> str:
    commands = [{"keystrokes": text, "is_blocking": True, "timeout_sec": 5} for text in keystrokes]
    data = {"state_analysis": "a", "explanation": "b", "commands": commands, "is_task_complete": complete}
    return json.dumps({**data, **further})


def test_terminal_commands_by_similarity() -> None:
    gold = turn(content=terminus("pip list | grep oauth\n"), harness="terminus_1")
    assert score("terminal", gold, terminus("pip list | grep oauth\n", state_analysis="other")) == 1.0
    assert score("terminal", gold, terminus("pip list | ", "grep oauth\n")) == 1.0, "keystrokes are joined"
    # 21 of 22 and 23 characters in common: 2·22/(22 + 23) = 0.978
    assert score("terminal", gold, terminus("pip list | grep -oauth\n")) == 1.0
    assert score("terminal", gold, terminus("pip freeze\n")) == 0.0
    for broken in (
        "pip list", "{}", terminus("x", complete=True), terminus("pip list | grep oauth\n", complete=True),
        terminus("pip list | grep oauth\n", commands="pip"), terminus("pip list | grep oauth\n", explanation=3),
        "```json\n" + terminus("pip list | grep oauth\n") + "\n```",
    ):  # fmt: skip
        assert score("terminal", gold, broken) == 0.0


def test_terminal_with_tools() -> None:
    gold = turn(("exec_command", {"cmd": "git status --short", "workdir": "/w"}))
    assert score("terminal", gold, said(("exec_command", {"cmd": "git status  --short", "workdir": "/w"}))) == 1.0
    assert score("terminal", gold, said(("exec_command", {"cmd": "git status --short", "workdir": "/v"}))) == 0.0
    assert score("terminal", gold, said(("exec_command", {"cmd": "rm -r .", "workdir": "/w"}))) == 0.0
    assert score("terminal", gold, said(("shell", {"cmd": "git status --short", "workdir": "/w"}))) == 0.0
    two = turn(("write_stdin", {"session_id": 7, "chars": ""}), ("exec_command", {"cmd": "pwd"}))
    swapped = said(("exec_command", {"cmd": "pwd"}), ("write_stdin", {"session_id": 7, "chars": ""}))
    assert score("terminal", two, swapped) == 0.0


class Scripted:
    """A judge that answers by rule and remembers what it was asked."""

    def __init__(self, rule: Callable[[str], float]) -> None:
        self.rule = rule
        self.asked: list[str] = []

    async def ask(self, prompt: str, about: str) -> float:
        self.asked.append(prompt)
        return self.rule(prompt)


def failing(prompt: str) -> float:
    raise JudgeError("grader: HTTP 500")


def test_the_judge_is_asked_twice_with_the_actions_swapped() -> None:
    gold, other = turn(content=terminus("ls\n"), harness="terminus_1"), terminus("dir --all\n")
    fair = Scripted(lambda prompt: 1.0)
    verdict = assess(TerminalVerifier(judge=EquivalenceJudge(fair)), gold, other)
    assert verdict.score == 1.0 and len(fair.asked) == 2
    order = [asked.index("ls\\n") < asked.index("dir") for asked in fair.asked]
    assert order == [True, False]
    # A judge that likes whatever stands first.
    first = Scripted(lambda prompt: float(prompt.index("ls\\n") < prompt.index("dir")))
    assert assess(TerminalVerifier(judge=EquivalenceJudge(first)), gold, other).score == 0.0 and len(first.asked) == 2
    strict = Scripted(lambda prompt: 0.0)
    verifier = TerminalVerifier(judge=EquivalenceJudge(strict))
    assert assess(verifier, gold, other).score == assess(verifier, gold, other).score == 0.0
    assert len(strict.asked) == 1, "no second pass after a no, and verdicts are remembered"
    assert assess(verifier, gold, terminus("ls\n")).score == 1.0 and len(strict.asked) == 1
    gold = turn(content=terminus("ls\n"), harness="terminus_1")
    verdict = assess(TerminalVerifier(judge=EquivalenceJudge(Scripted(failing))), gold, terminus("dir --all\n"))
    assert verdict.score == 0.0 and verdict.judge_failed and "HTTP 500" in verdict.reason


def test_messages_by_a_judge() -> None:
    judge = Scripted(lambda prompt: float("Madrid" not in prompt))
    verifier = DialogueVerifier(ToolCallVerifier(), EquivalenceJudge(judge))
    gold = turn(content="The capital is Paris.")
    assert assess(verifier, gold, "It is Paris.").score == 1.0 and len(judge.asked) == 2
    assert "user: please" in judge.asked[0]
    assert assess(verifier, gold, "It is Madrid.").score == 0.0
    asked = len(judge.asked)
    assert assess(verifier, gold, " The capital  is Paris.").score == 1.0
    assert assess(verifier, gold, said(ROME)).score == 0.0 and assess(verifier, turn(ROME), said(ROME)).score == 1.0
    assert len(judge.asked) == asked, "equal messages and calls need no judge"


def test_unusable_options() -> None:
    for options, message in (
        ({"verifier": "tool_cal"}, "unknown env.verifier 'tool_cal': did you mean 'tool_call'"),
        ({"threshold": 0.6}, r"threshold=0\.6: must be at most 0\.5, or -1"),
        ({"similarity": 2.0}, "must be at most 1, or -1"),
        ({"judge_url": "http://x"}, "belong together"),
    ):
        with pytest.raises(InputError, match=message):
            read_env_options(env_spec("pivot"), options)
    assert f": {', '.join(VERIFIERS)}, or a plugin's" in keys_of(VerifierOptions)["verifier"].help
    with pytest.raises(InputError, match=r"dialogue needs a judge: set env\.judge_url"):
        make_verifier(VerifierOptions(verifier="dialogue"))
    assert read_env_options(env_spec("pivot"), {"threshold": 0}).threshold == 0.0


@pytest.mark.parametrize("name", [name for name in VERIFIERS if name != "dialogue"])
def test_the_experts_of_real_traces_pass_every_verifier(name: str) -> None:
    airline = read_traces(real_file("tau_bench", "historical_trajectories", "gpt-4o-airline.json")).traces[:40]
    traces = [*airline, *read_traces(nemo("single_step_tool_use_with_argument_comparison")).traces]
    traces += [*read_traces(nemo("swe_pivot")).traces, *read_traces(nemo("terminal_multi_harness")).traces]
    traces += read_traces(nemo("terminus_judge")).traces
    turns = extract_turns(traces, Extraction(min_reward=0.0)).turns
    check = self_check(make_verifier(VerifierOptions(verifier=name)), turns)
    assert check.checked > 300 and not check.failures, check.summary()


def test_a_verifier_that_refuses_its_demonstrations_is_found() -> None:
    turns = [turn(ROME), turn(content="<think>endless")]
    check = self_check(make_verifier(VerifierOptions()), turns)
    assert [place.kind for place, _ in check.failures] == ["message"]
    assert check.summary().startswith("1 of 2 demonstrated actions score 1; not so f:1: turn 0: malformed: ")


def response_text(row: dict[str, Any]) -> str:
    """Write the model's output of a NeMo-Gym rollout as a response."""
    content, calls = "", []
    for item in row["response"]["output"]:
        if item["type"] == "message":
            content += "".join(part["text"] for part in item["content"])
        elif item["type"] == "function_call":
            calls.append(ToolCall(item["name"], json.loads(item["arguments"])))
    return write_response(content, calls)


def test_rewards_of_nemo_gyms_own_comparator() -> None:
    file = nemo("single_step_tool_use_with_argument_comparison", "example_rollouts.jsonl")
    turns = [turn for trace in read_traces(file).traces for turn in trace_turns(trace)]
    verifier = make_verifier(VerifierOptions(verifier="tool_call"))
    rewards = [row["reward"] for row in rows(file)]
    assert [assess(verifier, t, response_text(row)).score for t, row in zip(turns, rows(file), strict=True)] == rewards
    assert sorted(set(rewards)) == [0.0, 1.0]


def test_checks_of_nemo_gyms_own_terminal_verifier() -> None:
    file = nemo("terminus_judge", "example_rollouts.jsonl")
    turns = [turn for trace in read_traces(file).traces for turn in trace_turns(trace)]
    for found, row in zip(turns, rows(file), strict=True):
        judge = Scripted(lambda prompt, row=row: float(row["judge_passed"]))
        verdict = assess(TerminalVerifier(judge=EquivalenceJudge(judge)), found, response_text(row))
        assert verdict.score == row["reward"], verdict.reason
        reached = row["schema_check_passed"] and row["task_complete_check_passed"]
        assert bool(judge.asked) == (reached and not row["string_similarity_passed"])
