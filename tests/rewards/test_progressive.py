"""PRS on episodes: what their text says, which stage they reach, and judges: what they are asked, accept and cost."""

import json
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from loopback import Loopback, loopback, saying

from rl_agents.algorithms import Settings
from rl_agents.background import wait
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.errors import InputError
from rl_agents.rewards.base import EnvironmentReward, make_reward
from rl_agents.rewards.judges import JudgeError, RuleJudge, make_judge, prompt
from rl_agents.rewards.reading import Reading, final_answer, read_episode, tags_complete

THINK = "<think> hm </think> "
CALL, ANSWER = THINK + "<search> capital of France </search>", THINK + "<answer> Paris </answer>"
UNTAGGED = "<answer> Paris </answer>"


def episode(*actions, invalid=(), references=("Paris",), reward=0.0):
    steps = [
        Step([1], [2], [-1.0], 0, "stop", f"observation {i}", "", action, valid=i not in invalid)
        for i, action in enumerate(actions)
    ]
    steps[-1].reward = reward
    facts = {"references": list(references)} if references else {}
    return Trajectory("task", 0, 0, 0, steps, terminated=True, end_cause="terminated", facts=facts)


def settings(**keys):
    return Settings.from_dict({"reward": "prs", **keys})


def score(trajectory, **keys):
    metrics = make_reward(settings(**keys)).apply([trajectory])
    return trajectory.episode_return, metrics


@pytest.mark.parametrize(
    ("trajectory", "keys", "expected"),
    [(episode(ANSWER), {}, 2.1), (episode(ANSWER), {"prs_require_tool_call": True}, -0.9),
     (episode(CALL, ANSWER), {"prs_require_tool_call": True}, 2.1), (episode(CALL, UNTAGGED), {}, 2.1),
     (episode(UNTAGGED), {}, 2.0), (episode(CALL, ANSWER, invalid=[0]), {}, -0.9),
     (episode("junk", invalid=[0]), {}, -1.0), (episode(CALL, THINK + "<answer> </answer>"), {}, 0.1),
     (episode(CALL, THINK + "<answer> Paris"), {}, 0.0), (episode(CALL, CALL), {}, 0.0),
     (episode(CALL, ANSWER, invalid=[1]), {}, 0.1),
     (episode(CALL, ANSWER, references=("New York City", "Rome", "paris")), {}, 2.1),
     (episode(CALL, ANSWER.replace("Paris", "new york"), references=("New York City",)), {}, 1.706531),
     (episode(CALL, ANSWER.replace("Paris", "new york city usa"), references=("New York City",)), {}, 1.1),
     (episode(CALL, ANSWER), {"prs_form": "long"}, 3.1),
     (episode(CALL, ANSWER.replace("Paris", "Rome")), {"prs_form": "long"}, 1.1),
     (episode(CALL, ANSWER.replace("Paris", "It is Paris")), {"prs_form": "long"}, 2.1),
     (episode(CALL, ANSWER), {"prs_form": "general"}, 1.1 + 2 * 0.7310585786),
     (episode(CALL, ANSWER.replace("Paris", "Rome")), {"prs_form": "general"}, 1.6),
     (episode(CALL, ANSWER), {"prs_form": "general", "prs_thresholds": [2.0, 1.0]}, 1.1)],
)  # fmt: skip
def test_rewards_of_episodes(trajectory, keys, expected):
    assert score(trajectory, **keys)[0] == pytest.approx(expected, abs=1e-6)


def test_the_environments_return_is_kept_beside_the_parts():
    trajectory = episode(CALL, ANSWER, reward=1.0)
    _, metrics = score(trajectory)
    assert [step.reward for step in trajectory.steps] == [0.0, pytest.approx(2.1)]
    assert trajectory.facts["environment_return"] == 1.0
    assert trajectory.facts["prs"] == {"process": 1.0, "format": 0.1, "judge": None, "answer": 1.0}
    assert metrics == {
        "reward/process_mean": 1.0, "reward/format_mean": 0.1, "reward/answer_stage_share": 1.0,
        "reward/answer_mean": 1.0, "reward/judge_calls": 0.0, "reward/judge_failures": 0.0,
        "reward/environment_return_mean": 1.0,
    }  # fmt: skip
    assert Trajectory.from_json(json.loads(json.dumps(trajectory.to_json()))) == trajectory
    assert isinstance(make_reward(Settings()), EnvironmentReward)
    assert make_reward(settings()).apply([Trajectory("x", 0, 0, 0, failed=True)]) == {}


@pytest.mark.parametrize(
    ("texts", "complete"),
    [([THINK + UNTAGGED], True), ([THINK, UNTAGGED], True), ([UNTAGGED], False),
     (["<think> a", "</think>" + UNTAGGED], False), (["</think> <think>" + UNTAGGED], False),
     (["<think> <think> a </think> </think>" + UNTAGGED], False), (["<think> <answer> </think> </answer>"], False),
     (["hm</think>" + UNTAGGED], True), (["hm</think> Paris </answer>"], False),  # the template opened the thought
     ([THINK + "<answer> a </answer> <answer> b </answer>"], True), ([THINK + UNTAGGED, "<think>"], False),
     ([THINK + "<other>" + UNTAGGED], True)],
)  # fmt: skip
def test_tags(texts, complete):
    assert tags_complete(texts, ["think", "answer"]) is complete
    assert tags_complete(texts, []) is True


def test_which_answer_counts():
    assert final_answer("<answer>Rome</answer> or <answer>Paris</answer>") == "Paris"
    assert final_answer("<answer><answer>Rome</answer></answer>") == "<answer>Rome"
    assert read_episode(episode("<think> <answer>Rome</answer> </think> hm"), []).answer == ""
    thought = episode("<reasoning> <answer>Rome</answer> </reasoning> <answer>Oslo</answer>")
    assert read_episode(thought, []).answer == "Oslo"
    reading = read_episode(episode(ANSWER, CALL, ANSWER, invalid=[0]), [])
    assert reading.calls_parsed == (False, True) and reading.question == "observation 0"
    assert reading.evidence == ("observation 1", "observation 2")


def test_an_environment_without_references_is_named():
    with pytest.raises(InputError, match=r"gives none for task task \(info\['references'\]\)"):
        score(episode(CALL, ANSWER, references=()))
    assert score(episode(CALL, CALL, references=()))[0] == 0.0


def verdict(answer: str, *references: str) -> float:
    return wait(RuleJudge().verdict(Reading((), answer, True, references, "", ())))


def test_the_rule_judge_looks_for_a_reference_in_the_answer() -> None:
    assert verdict("It is the New York City.", "new york city") == 1.0
    assert verdict("York New City", "new york city") == 0.0
    assert verdict("Oslo", "Rome", "Oslo") == 1.0
    assert verdict("Parisian", "Paris") == verdict("x", "the") == verdict("x") == 0.0
    assert verdict("w " * 12 + "new york", "New York") == 1.0
    assert verdict("w " * 13 + "new york", "New York") == 0.0
    assert verdict("new york " + "w " * 13, "Oslo", "New York") == 0.0
    assert verdict("new york", "new york city") == 0.0


@pytest.fixture
def server(monkeypatch) -> Iterator[Loopback]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with loopback(saying("yes")) as server:
        yield server


def openai(server, **keys):
    return settings(**{"prs_form": "long", "judge": "openai", "judge_url": server.url, "judge_model": "grader", **keys})


READING = Reading((True,), "Paris", True, ("Paris", "Lutetia"), "capital of France?", ("It is Paris.",))
LONG = Reading((), "An answer.", True, ("A reference.",), "Who?", ("One.", "Two."), ("A point.", "Another."))


@pytest.mark.parametrize("form", ["short", "long", "general"])
def test_the_judge_is_asked_only_where_its_stage_is_reached(server, form):
    keys = {} if form == "short" else {"judge": "openai", "judge_url": server.url, "judge_model": "grader"}
    batch = [episode(CALL, ANSWER), episode(CALL, CALL), episode(CALL, ANSWER, invalid=[0])]
    batch += [episode(CALL, THINK + "<answer> </answer>"), episode(CALL, ANSWER.replace("Paris", "Rome"))]
    metrics = make_reward(settings(prs_form=form, **keys)).apply(batch)
    asked = [request.body["messages"][0]["content"] for request in server.requests]
    expected = 0 if form == "short" else 2
    assert len(asked) == metrics["reward/judge_calls"] == expected
    assert sorted("Rome" in text for text in asked) == [False, True][:expected]


def test_what_the_judge_is_asked(server) -> None:
    judge = make_judge(openai(server))
    server.answer = saying(lambda text: "No." if "Lutetia" in text else "yes")
    assert wait(judge.verdict(READING)) == 0.0
    body = server.requests[0].body
    assert body == {
        "model": "grader", "temperature": 0, "max_completion_tokens": 256,
        "messages": [{"role": "user", "content": prompt(READING)}],
    }  # fmt: skip
    assert "authorization" not in server.requests[0].headers
    assert all(part in prompt(READING) for part in ("capital of France?", "It is Paris.", "Paris\nLutetia"))
    judge = make_judge(openai(server))
    assert wait(judge.complete(LONG)) == 1.0
    server.answer = saying(lambda text: "no")
    assert wait(judge.complete(LONG)) == 0.0
    text = server.requests[1].body["messages"][0]["content"]
    assert "[Question]\nWho?\n\n[Reference answer]\nA reference.\n\n" in text
    assert "state]\n- A point.\n- Another.\n\n[The agent's answer]\nAn answer.\n\n" in text
    server.answer = saying(lambda text: "well")
    with pytest.raises(JudgeError, match=r"replied 'well', neither yes nor no; asked about: Who\? -> An answer\."):
        wait(judge.complete(LONG))


def test_the_key_is_sent_and_never_shown(server, monkeypatch):
    monkeypatch.setenv("GRADER_KEY", "s3cret-key")
    judge = make_judge(openai(server, judge_key_env="GRADER_KEY"))
    wait(judge.verdict(READING))
    assert server.requests[0].headers["authorization"] == "Bearer s3cret-key"
    server.answer = saying("yes", statuses=[401])
    with pytest.raises(JudgeError, match="HTTP 401") as caught:
        wait(judge.verdict(READING))
    assert "s3cret" not in f"{caught.value} {judge!r}"
    monkeypatch.delenv("GRADER_KEY")
    with pytest.raises(InputError, match="judge_key_env=GRADER_KEY: the environment variable is not set"):
        make_judge(openai(server, judge_key_env="GRADER_KEY"))


def test_retries_are_only_for_what_may_pass(server):
    """How often a server is asked: `web.test_model_server`."""
    judge = make_judge(openai(server))
    server.answer = saying("yes", statuses=[500])
    assert wait(judge.verdict(READING)) == 1.0 and len(server.requests) == 2
    for reply, problem in (("perhaps", "neither yes"), ("<think>Yes, it", "neither yes"), (None, "no chat completion")):
        server.answer = saying(lambda text, reply=reply: reply)
        with pytest.raises(JudgeError, match=problem):
            wait(judge.verdict(READING))
    assert len(server.requests) == 5


@pytest.mark.parametrize(
    ("reply", "expected"),
    [("Match", 1.0), ("<Evaluation Rating>: Mismatch", 0.0), ("<think>Mismatch?</think> **match**", 1.0)],
)
def test_the_question_of_the_prs_paper(server: Loopback, reply: str, expected: float) -> None:
    """Appendix B: the reference decides, whatever the tools returned, for the answer and for its completeness."""
    judge = make_judge(openai(server, judge="openai-prs"))
    server.answer = saying(lambda text: reply)
    assert wait(judge.verdict(LONG)) == wait(judge.complete(LONG)) == expected
    text = server.requests[0].body["messages"][0]["content"]
    assert text.startswith("Role and Background\nYou are an experienced AI capability evaluation expert, with rig")
    assert "Does the [Q&A Agents Response] match the [Reference Answer]?\n" in text
    assert text.endswith("Question]: Who?\n[Q&A Agents Response]: An answer.\n[Reference Answer]: A reference.")
    server.answer = saying(lambda text: "yes")
    with pytest.raises(JudgeError, match="replied 'yes', neither Match nor Mismatch"):
        wait(judge.verdict(LONG))


def test_a_failed_judgment_is_a_failure_and_not_a_zero(server):
    server.answer = saying(lambda text: "perhaps" if "Rome" in text else "yes")
    good, lost = episode(CALL, ANSWER), episode(CALL, ANSWER.replace("Paris", "Rome"))
    reward = make_reward(openai(server))
    metrics = reward.apply([good, lost])
    assert (metrics["reward/judge_calls"], metrics["reward/judge_failures"]) == (2.0, 1.0)
    assert lost.failed and lost.metrics == {"judge_failed": 1.0}
    assert lost.end_cause.startswith("judge_error: grader at") and not good.failed
    assert good.episode_return == pytest.approx(3.1)
    assert reward.apply([episode(CALL, ANSWER.replace("Paris", "Rome"))])["reward/judge_failures"] == 1.0
    with pytest.raises(InputError, match="the judge answered none of 1 questions: grader at"):
        make_reward(openai(server)).apply([episode(CALL, ANSWER.replace("Paris", "Rome"))])


def test_training_with_prs_and_t3(beginner_model_dir, server):
    from rl_agents.trainer.algorithm import AgentConfig

    keys = {"tasks_per_iteration": 4, "group_size": 4, "eval_episodes": 8, "truncation": "t3", "reward": "prs"}
    judge = {"prs_form": "long", "judge": "openai", "judge_url": server.url, "judge_model": "grader"}
    config = AgentConfig().training(model=str(beginner_model_dir), **keys, **judge)
    server.answer = saying(lambda text: "no" if "1" in text.rpartition("answer]\n")[2].split("\n")[0] else "yes")
    agent = config.local().build_algo()
    metrics = agent.train()["agent"]
    assert metrics["actor/grad_norm"] > 0
    assert -1 <= metrics["rollout/return_mean"] <= 3.1
    assert metrics["reward/environment_return_mean"] == metrics["rollout/success_rate"]
    for t in agent.last_trajectories:
        parts = t.facts["prs"]
        assert t.facts["references"] == [t.task_id.rpartition("/")[2]]
        assert (parts["judge"] is None) == (parts["process"] < 1)
    assert {t.episode_return for t in agent.evaluate_policy("test", 8)} <= {0.0, 1.0}
    agent.stop()


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.ray
def test_a_real_vllm_server_judges(judge_that_says_yes, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    keys = {"prs_form": "long", "judge": "openai", "judge_url": judge_that_says_yes}
    good, bad = episode(CALL, ANSWER), episode(CALL, ANSWER.replace("Paris", "Rome"))
    metrics = make_reward(settings(**keys, judge_model="judge")).apply([good, bad, episode(CALL, CALL)])
    assert (metrics["reward/judge_calls"], metrics["reward/judge_mean"]) == (2.0, 1.0)
    assert [good.episode_return, bad.episode_return] == pytest.approx([3.1, 2.1])
    with pytest.raises(InputError, match=rf"nobody at {judge_that_says_yes}: HTTP 404"):
        make_reward(settings(**keys, judge_model="nobody")).apply([episode(CALL, ANSWER)])
