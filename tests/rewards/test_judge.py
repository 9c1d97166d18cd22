"""Judges by themselves: what the rule accepts, what a server reads and how often it is asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from test_progressive import READING, Server, openai

from rl_agents.background import wait
from rl_agents.rewards.judge import JudgeError, RuleJudge, prompt
from rl_agents.rewards.judges import make_judge
from rl_agents.rewards.reading import Reading

LONG = Reading((), "An answer.", True, ("A reference.",), "Who?", ("One.", "Two."), ("A point.", "Another."))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def verdict(answer: str, *references: str) -> float:
    return wait(RuleJudge().verdict(Reading((), answer, True, references, "", ())))


def test_a_short_answer_may_say_twelve_words_besides_the_reference() -> None:
    assert verdict("w " * 12 + "new york", "New York") == 1.0
    assert verdict("w " * 13 + "new york", "New York") == 0.0
    assert verdict("new york " + "w " * 13, "Oslo", "New York") == 0.0
    assert verdict("new york", "new york city") == 0.0


def test_what_a_judge_of_completeness_is_asked(server: Server) -> None:
    judge = make_judge(openai(server))
    assert wait(judge.complete(LONG)) == 1.0
    server.reply = lambda text: "no"
    assert wait(judge.complete(LONG)) == 0.0
    (body, _), _ = server.requests
    text = body["messages"][0]["content"]
    assert "[Question]\nWho?\n\n[Reference answer]\nA reference.\n\n" in text
    assert (
        "[Points that the answer has to state]\n- A point.\n- Another.\n\n[The agent's answer]\nAn answer.\n\n" in text
    )
    server.reply = lambda text: "well"
    with pytest.raises(JudgeError, match=r"replied 'well', neither yes nor no; asked about: Who\? -> An answer\."):
        wait(judge.complete(LONG))


@pytest.mark.parametrize(
    ("reply", "expected"),
    [("Match", 1.0), ("<Evaluation Rating>: Mismatch", 0.0), ("<think>Mismatch?</think> **match**", 1.0)],
)
def test_the_question_of_the_prs_paper(server: Server, reply: str, expected: float) -> None:
    """Appendix B: the reference decides, whatever the tools returned, for the answer and for its completeness."""
    judge = make_judge(openai(server, judge="openai-prs"))
    server.reply = lambda text: reply
    assert wait(judge.verdict(LONG)) == wait(judge.complete(LONG)) == expected
    text = server.requests[0][0]["messages"][0]["content"]
    assert text.startswith("Role and Background\nYou are an experienced AI capability evaluation expert, with rig")
    assert "Does the [Q&A Agents Response] match the [Reference Answer]?\n" in text
    assert text.endswith(
        "[Merchants Question]: Who?\n[Q&A Agents Response]: An answer.\n[Reference Answer]: A reference."
    )
    server.reply = lambda text: "yes"
    with pytest.raises(JudgeError, match="replied 'yes', neither Match nor Mismatch"):
        wait(judge.verdict(LONG))


def test_where_there_is_no_evidence_or_no_reference_the_judge_is_told() -> None:
    assert "\nOne.\nTwo.\n" in prompt(LONG)
    bare = prompt(Reading((), "An answer.", True, (), "Who?", ()))
    assert "tools returned]\n(nothing)\n\n" in bare and "right]\n(none given)\n\n" in bare


def test_what_the_server_refuses_is_not_asked_again_but_failures_are(server: Server) -> None:
    server.reply = lambda text: "yes"
    server.status = [500, 503]
    assert wait(make_judge(openai(server, judge_retries=2)).verdict(READING)) == 1.0
    for status in (400, 404, 430, 499):
        server.status = [status]
        with pytest.raises(JudgeError, match=rf"HTTP {status}"):
            wait(make_judge(openai(server, judge_retries=3)).verdict(READING))
    assert len(server.requests) == 7


def test_a_request_is_bounded_and_the_same_every_time(server: Server) -> None:
    wait(make_judge(openai(server, judge_url=server.url + "/")).verdict(READING))
    (body, headers), *_ = server.requests
    assert {name: value for name, value in body.items() if name != "messages"} == {
        "model": "grader", "temperature": 0, "max_completion_tokens": 256,
    }  # fmt: skip
    assert "Authorization" not in headers


def test_errors_quote_a_line_and_not_a_page(server: Server) -> None:
    server.reply = lambda text: "x" * 1000
    wordy = Reading((), "said " * 200, True, ("Paris",), "capital\n\nof   France?", ())
    with pytest.raises(JudgeError) as caught:
        wait(make_judge(openai(server, judge_url=server.url + "/")).verdict(wordy))
    start, quoted, about = f"grader at {server.url}: replied '", "x" * 160, "capital of France? -> said said"
    message = str(caught.value)
    assert message.startswith(f"{start}{quoted}', neither yes nor no; asked about: {about}")
    assert len(message.partition("asked about: ")[2]) == 160
