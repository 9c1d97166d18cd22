"""Plays rows of an environment of the library verifiers, classic or v1, in an interpreter that has it.

`agent` is called by `rl_agents.gateway.agent_interpreter_child`. The process loads an environment once, for all of its
sessions. It imports only the standard library and verifiers, since rl_agents is not installed in that interpreter.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import sys
import sysconfig
from copy import deepcopy
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

sys.path.remove(os.path.dirname(__file__))  # its modules have names like env, as an environment's may have
LIBRARIES = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib"))
#: The file and the line of a frame in a traceback.
PLACE = re.compile(r'File "([^"]+)", line (\d+)')
#: Policy's answers that end an episode, whose score counts.
ANSWERS = ("EmptyModelResponseError", "InvalidModelResponseError")


async def agent(task: dict[str, Any], client: Any) -> Any:
    """Play the row ``task["id"]`` and return its result. Without ``id``, return the digests of all rows."""
    environment = loaded(json.dumps(task["environment"], sort_keys=True))
    if "id" not in task:
        return {name: digest(row) for name, row in environment.rows()}
    reward, metrics = await environment.play(task, client)
    least = task["success_reward"]
    return {"reward": reward, "metrics": metrics, "success": reward > 0 if least is None else reward >= least}


@cache
def loaded(environment: str) -> Any:
    keys = json.loads(environment)
    try:
        library = import_module("verifiers")
    except ModuleNotFoundError:
        sys.exit(f"verifiers is not installed in this Python: {sys.executable} -m pip install verifiers")
    name = keys["id"]
    if name.endswith(".py"):
        sys.path.insert(0, folder := os.path.dirname(name))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))  # v1's servers
        name = os.path.basename(name)[:-3]
    module = name.split("/")[-1].split("@")[0].replace("-", "_")
    if find_spec(module) is None and not (find_spec("verifiers.v1") and find_spec(f"verifiers.v1.tasksets.{module}")):
        sys.exit(
            f"{sys.executable} has no module {module}: install the environment there (prime env install {name}, or "
            f"{sys.executable} -m pip install {name}), or name its file, env.id=FILE.py"
        )
    home = import_module(module) if find_spec(module) else None
    classic, has_classic = hasattr(home, "load_environment"), find_spec("verifiers.legacy") is not None
    if classic != has_classic:
        kind, needed = ("classic", "0.3") if classic else ("v1 (it has no load_environment)", "0.4")
        sys.exit(f"the environment is {kind} and needs verifiers {needed}, and there is {library.__version__}")
    if classic:
        return Classic(home, keys["args"])
    return V1(name, keys["args"], keys["agent"], keys["limit"])


def digest(row: dict[str, Any]) -> str:
    """Return the same for rows that differ only in their number."""
    content = {name: row[name] for name in row if name not in ("example_id", "idx")}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


class Classic:
    """An environment that ``load_environment`` returns: SingleTurnEnv, ToolEnv, MultiTurnEnv."""

    def __init__(self, home: Any, args: dict[str, Any]) -> None:
        self.env = home.load_environment(**args)
        self.data = {"train": self.env.build_dataset(), "test": self.env.build_eval_dataset()}
        self.groups = dict[str, tuple[list[Any], asyncio.Future[Any]]]()
        kind = import_module("verifiers.legacy.clients.openai_chat_completions_client").OpenAIChatCompletionsClient
        openai = import_module("openai").AsyncOpenAI(base_url="http://127.0.0.1", api_key="none")
        self.model = lambda client: kind(openai.with_options(base_url=client.base_url, api_key=client.api_key))

    def rows(self) -> Any:
        for part, data in self.data.items():
            for number, row in enumerate(data or ()):
                yield f"{part}/{number}", row

    async def play(self, task: dict[str, Any], client: Any) -> tuple[float, dict[str, float]]:
        part, _, number = task["id"].partition("/")
        asked = self.data[part][int(number)], self.model(client), "policy", deepcopy(self.env.sampling_args)
        if self.env.requires_group_rollouts:
            if client.peers > task["concurrency"]:
                sys.exit(f"the rubric rewards groups: env.agent_concurrency must be at least group_size={client.peers}")
            ended = await self._with_its_group(client, asked)
        else:
            ended = await self.env.run_rollout(*asked)
        if error := ended["error"]:
            kind = error["error"] if isinstance(error, dict) else type(error).__name__
            # Also when the gateway refuses a further call, the dialogue so far is scored.
            if kind not in ANSWERS and not (kind == "ModelError" and ended["completion"]):
                sys.exit(error["error_chain_repr"] if isinstance(error, dict) else repr(error))
        return ended["reward"], ended["metrics"]

    async def _with_its_group(self, client: Any, asked: tuple[Any, ...]) -> Any:
        """Play a row; the last session of a group to end its dialogue, or to fail, lets the group be scored."""
        new: tuple[list[Any], asyncio.Future[Any]] = ([], asyncio.get_running_loop().create_future())
        (ended, scored), state = self.groups.setdefault(client.group, new), None
        try:
            state = await self.env.rollout(*asked)
        finally:
            ended.append(state)
            if len(ended) == client.peers:
                del self.groups[client.group]
                rubric = self.env.rubric
                score = rubric.score_group if self.env.score_rollouts else rubric.dummy_score_group
                scored.set_result(asyncio.ensure_future(score([one for one in ended if one is not None])))
        await asyncio.shield(await asyncio.shield(scored))
        await self.env.rubric.cleanup(state)
        return state


class V1:
    """A task set of verifiers.v1 with one agent, by default the harness ``null`` in a subprocess."""

    def __init__(self, name: str, args: dict[str, Any], agent: dict[str, Any], limit: int) -> None:
        self.v1, loaders = import_module("verifiers.v1"), import_module("verifiers.v1.utils.loaders")
        kind = loaders.env_config_type(name)
        seats = [seat for seat, one in kind.model_fields.items() if isinstance(one.default, self.v1.AgentConfig)]
        if len(seats) > 1:
            sys.exit(f"it has several agents ({', '.join(seats)}), and only environments of one agent can be trained")
        own = loaders.default_harness_id(name) != "bash"  # which is the library's own default
        seat = {**({} if own else {"harness": {"id": "null"}}), "runtime": {"type": "subprocess"}, **agent}
        if seat.get("harness") == {"id": "null"} and shutil.which("uv") is None:
            sys.exit("the harness null of verifiers needs the program uv on the PATH: pip install uv")
        self.env = loaders.load_environment(kind(taskset={"id": name, **args}, **{seats[0]: seat}))
        if not (limit or self.env.taskset.bounded):
            sys.exit("its task set is endless: set env.limit=1000")
        self.tasks = list(self.env.taskset.take(limit) if limit else self.env.taskset)
        self.serving: asyncio.Future[None] | None = None

    def rows(self) -> Any:
        for number, task in enumerate(self.tasks):
            yield f"train/{number}", task.data.model_dump(mode="json")

    async def play(self, task: dict[str, Any], client: Any) -> tuple[float, dict[str, float]]:
        await self._served()
        variable = f"API_KEY_{client.session}"  # the library reads keys there, and hides those names from subprocesses
        os.environ[variable] = client.api_key
        try:
            endpoint = self.v1.EvalClientConfig(base_url=client.base_url, api_key_var=variable)
            context = self.v1.ModelContext(model="policy", client=endpoint)
            episode = await self.env.run_episode(self.tasks[int(task["id"].partition("/")[2])], context)
        finally:
            del os.environ[variable]
        errors = [*(error for trace in episode.traces for error in trace.errors), *episode.errors]
        if not episode.ok and errors:
            sys.exit(told(errors[-1]))
        trace = episode.traces[0]
        scores = {name: one.score for name, one in trace.rewards.items() if one is not None}
        return trace.reward, {**scores, **{name: value for name, value in trace.metrics.items() if value is not None}}

    async def _served(self) -> None:
        """Start the environment's servers, once; they end with the process."""
        if self.serving is None:
            self.serving, self.up = asyncio.get_running_loop().create_future(), asyncio.ensure_future(self._serve())
        await asyncio.wait({self.serving, self.up}, return_when=asyncio.FIRST_COMPLETED)
        if self.up.done():
            self.up.result()

    async def _serve(self) -> None:
        async with self.env.serving():
            assert self.serving is not None
            self.serving.set_result(None)
            await asyncio.Event().wait()


def told(error: Any) -> str:
    """Return an error that v1 has recorded, with the deepest line outside of packages."""
    places = PLACE.findall(error.traceback or "")
    own = [f" ({os.path.basename(file)}:{line})" for file, line in places if not file.startswith(LIBRARIES)]
    return f"{error.type}: {error.message}{own[-1] if own else ''}"
