"""A gateway without an engine: it answers from a list, through the real dialects, and keeps what clients sent."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request

from rl_agents.gateway.calls import AnsweredCall, Delta, Finish, ModelAnswer, ModelCall, Start, StreamPart
from rl_agents.gateway.dialects import error_body, messages, model_body
from rl_agents.gateway.routes import model_routes
from rl_agents.web.bodies import json_object
from rl_agents.web.errors import ApiError, handlers

CREATED = 1_700_000_000
LETTERS = 5


def answered(
    content: str = "", *calls: tuple[str, dict[str, Any]], thoughts: str = "", finish: Finish = "stop", stop: str = ""
) -> ModelAnswer:
    """A whole answer; with calls it finishes with them."""
    made = tuple(AnsweredCall(f"call_{n}", name, json.dumps(value)) for n, (name, value) in enumerate(calls))
    reason: Finish = "tool_calls" if calls else finish
    count = len(thoughts.split()) + len(content.split()) + 3 * len(calls)
    return ModelAnswer(
        0, 7, "a1", content, thoughts, made, reason, 11, count, CREATED, "policy-v3", stop, len(thoughts.split())
    )


#: Every kind of answer.
ANSWERS = {
    "words": answered("Five is the sum."),
    "calls": answered("Let me see.", ("add", {"a": 2}), ("add", {"a": 3}), thoughts="Hm, two."),
    "call only": answered("", ("add", {"a": 2})), "cut": answered("Five is", finish="length"),
    "cut thoughts": answered("", thoughts="Two and three", finish="length"), "stopped": answered("Five", stop="END"),
    "other scripts": answered("Fünf – 五 🙂\n\ndata: x\u2028y\x85z", thoughts="è"), "nothing": answered(""),
}  # fmt: skip


def cut(text: str) -> list[str]:
    """DeltaLog as a model would stream them: not by words."""
    return [text[place : place + LETTERS] for place in range(0, len(text), LETTERS)]


async def pieces_of(answers: Sequence[ModelAnswer], breaks: ApiError | None = None) -> AsyncIterator[StreamPart]:
    """Stream answers, their deltas mixed; the last part of the content comes with the answer only."""
    yield Start(answers[0].id, answers[0].created, answers[0].label, answers[0].prompt_tokens)
    deltas = [
        [Delta(answer.index, thoughts=part) for part in cut(answer.thoughts)]
        + [Delta(answer.index, content=part) for part in cut(answer.content)[:-1]]
        for answer in answers
    ]
    for number in range(max(map(len, deltas), default=0)):
        for own in deltas:
            if number < len(own):
                yield own[number]
                await asyncio.sleep(0)
    if breaks is not None:
        raise breaks
    for answer in answers:
        yield answer


@dataclass
class Script:
    """A service of the real routes. What it answers, in order; a problem is raised before the stream."""

    answers: list[ModelAnswer | ApiError] = field(default_factory=list)
    calls: list[ModelCall] = field(default_factory=list)

    def begin(self, request: Request, dialect: ModuleType, body: bytes) -> tuple[ModelCall, Any]:
        call = self._read(body, dialect.read)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ApiError):
            raise answer
        return call, Scripted([
            replace(answer, id=f"a{len(self.calls)}", index=index, content=answer.content + "!" * index)
            for index in range(call.count)
        ])  # fmt: skip

    def count(self, request: Request, body: bytes) -> int:
        self._read(body, messages.read_count)
        return 42

    def model(self, request: Request) -> dict[str, Any]:
        return model_body("policy", CREATED)

    def _read(self, body: bytes, read: Any) -> ModelCall:
        self.calls.append(read(json_object(body)))
        return self.calls[-1]


@dataclass
class Scripted:
    """A request that is answered."""

    given: list[ModelAnswer]

    async def answers(self, *leaving: Any) -> list[ModelAnswer]:
        return self.given

    def stream(self) -> AsyncIterator[StreamPart]:
        return pieces_of(self.given)


def application(script: Script) -> Starlette:
    errors = handlers(logging.getLogger(__name__), "test", error_body)
    return Starlette(routes=model_routes(script), exception_handlers=errors)


@contextmanager
def scripted(script: Script) -> Iterator[str]:
    """Serve on a free port of this machine; yields the address, without ``/v1``."""
    config = uvicorn.Config(application(script), host="127.0.0.1", port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
