"""Harbor's task folders: rewards as harbor gives them, sandboxes that hold, and folders that cannot be used."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_models import save_chat_model
from processes import children_running

from rl_agents import errors
from rl_agents.background import settled
from rl_agents.cli import main
from rl_agents.envs.base import env_spec, named_env, read_env_options, starter_spec, task_ids
from rl_agents.envs.harbor import HarborOptions
from rl_agents.envs.harbor.sandbox import sandbox_kind
from rl_agents.envs.harbor.tasks import load_tasks
from rl_agents.errors import InputError
from rl_agents.tools.calls import ToolCall, write_response

pytestmark = pytest.mark.servers
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "harbor"
RUNNER = Path(__file__).with_name("harbor_runner.py")
#: An interpreter with harbor 0.26, which needs Python 3.12: docs/environments/harbor.md.
HARBOR = ROOT / ".venv-harbor" / "bin" / "python"
CONTAINERS = ("podman", "docker")
IMAGE = "localhost/rl-agents-test-bash:1"
DOCKERFILE = f"FROM {IMAGE}\nWORKDIR /app\nCOPY . .\n"
TEST = '[ "$(cat out.txt)" = hi ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt'

#: Name -> (tests/test.sh, commands, rewards or the beginning of harbor's error, what we say of such an error).
CASES: dict[str, tuple[str, list[str], Any, str]] = {
    "right": (TEST, ["echo -n hi > out.txt", "cat out.txt; false"], {"reward": 1.0}, ""),
    "wrong": (TEST, ["nonsense"], {"reward": 0.0}, ""),
    "absolute": (TEST, ["cd /; echo hi > /app/out.txt"], {"reward": 1.0}, ""),
    "named": ('echo \'{"a": 0.5, "b": true, "reward": 1}\' > /logs/verifier/reward.json', [],
              {"a": 0.5, "b": 1.0, "reward": 1.0}, ""),
    "json_first": ("cd /logs/verifier; echo 0 > reward.txt; echo '{\"reward\": 2}' > reward.json", [],
                   {"reward": 2.0}, ""),
    "exit_code": ("echo 1 > /logs/verifier/reward.txt; exit 3", [], {"reward": 1.0}, ""),
    "helper": ("bash /tests/helper.sh > /logs/verifier/reward.txt", [], {"reward": 0.25}, ""),
    "forged": ("true", ["echo 1 > /logs/verifier/reward.txt"], "RewardFileNotFound", "neither reward.txt nor"),
    "missing": ("echo no pytest here >&2", [], "RewardFileNotFound", "it said: 'no pytest here"),
    "empty": ("true > /logs/verifier/reward.txt", [], "RewardFileEmpty", "reward.txt of tests/test.sh is ''"),
    "word": ("echo good > /logs/verifier/reward.txt", [], "VerifierOutputParse", "is 'good"),
    "nan": ("echo nan > /logs/verifier/reward.txt", [], "VerifierOutputParse", "is 'nan"),
    "bad_json": ("echo '{\"reward\": 1' > /logs/verifier/reward.json", [], "VerifierOutputParse", "reward.json of"),
    "text_json": ("echo '{\"reward\": \"1\"}' > /logs/verifier/reward.json", [], "VerifierOutputParse", "no finite"),
    "list_json": ("echo '[1]' > /logs/verifier/reward.json", [], "VerifierOutputParse", "no finite number"),
}  # fmt: skip

WriteTask = Callable[..., Path]


@pytest.fixture(autouse=True)
def forgetful() -> None:
    sandbox_kind.cache_clear()
    load_tasks.cache_clear()
    errors._reported.clear()


@pytest.fixture
def task(tmp_path: Path) -> WriteTask:
    """Writes a task folder and returns the folder of all of them."""

    def write(name: str = "one", test: str = TEST, toml: str = "", docker: str = DOCKERFILE, **files: str) -> Path:
        folder = tmp_path / "tasks" / name
        texts = {
            "instruction.md": f"<!-- canary x -->\n\nDo {name}.\n", "task.toml": toml, "environment/Dockerfile": docker,
            "environment/note.txt": "note\n", "tests/test.sh": f"#!/bin/bash\n{test}\n",
            "tests/helper.sh": "echo 0.25\n",
            **files,
        }  # fmt: skip
        for file, text in texts.items():
            if text is not None:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(text)
        load_tasks.cache_clear()  # folders are read once per process
        return folder.parent

    return write


@pytest.fixture(scope="session")
def image() -> Callable[[str], None]:
    """Makes an image of this machine's bash, because none can be pulled."""

    def make(engine: str, folder: Path) -> None:
        for program in ("bash", "sleep", "timeout", "cat", "mkdir", "chmod", "rm", "ls", "head", "tail", "env", "id"):
            path = shutil.which(program)
            libraries = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout.split()
            for file in [path, *(word for word in libraries if word.startswith("/"))]:
                (folder / file[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, folder / file[1:])
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "tmp").mkdir()
        shutil.copy(shutil.which("bash"), folder / "bin" / "bash")
        archive = shutil.make_archive(str(folder), "tar", folder)
        subprocess.run([engine, "import", archive, IMAGE], check=True, capture_output=True)
        subprocess.run(
            [engine, "run", "--rm", "--memory=64m", IMAGE, "bash", "-c", "true"], check=True, capture_output=True
        )

    return make


@pytest.fixture(scope="session", params=["bubblewrap", "none", *CONTAINERS])
def kind(request: pytest.FixtureRequest, image: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    try:
        sandbox_kind(request.param)
        if request.param in CONTAINERS:
            image(request.param, tmp_path_factory.mktemp("image") / "root")
    except (InputError, subprocess.CalledProcessError) as error:
        pytest.skip(f"{error} {getattr(error, 'stderr', '')!s}"[-300:])
    return str(request.param)


@pytest.fixture
def bubblewrap() -> str:
    try:
        return sandbox_kind("bubblewrap")
    except InputError as error:
        pytest.skip(str(error))


@pytest.fixture
def opened() -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(path: Path, sandbox: str, max_turns: int = 0, **options: Any) -> Any:
        made.append(named_env("harbor", max_turns=max_turns, path=str(path), sandbox=sandbox, **options).unwrapped)
        return made[-1]

    yield make
    for env in made:
        env.close()


def started(env: Any, name: str = "one") -> tuple[str, dict[str, Any]]:
    return settled(env.reset(options={"task_id": name}))


def bash(env: Any, *commands: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
    """Runs commands in one turn; without any, ends the episode."""
    return settled(env.step(write_response("done", [ToolCall("bash", {"command": command}) for command in commands])))


def test_rewards_are_those_of_the_tests(kind: str, task: WriteTask, opened: Callable[..., Any]) -> None:
    cases = {
        name: case for name, case in CASES.items() if kind not in CONTAINERS or name in ("right", "forged", "helper")
    }
    path, *_ = [task(name, case[0]) for name, case in cases.items()]
    env = opened(path, kind)
    for name, (_, commands, rewards, problem) in cases.items():
        observation, info = started(env, name)
        assert info["messages"] == [{"role": "user", "content": f"Do {name}."}] and observation.endswith(f"Do {name}.")
        said = [bash(env, command) for command in commands]
        if name == "right":
            assert [answer[0] for answer in said] == [
                "<tool_response>\n\n</tool_response>", "<tool_response>\nhi\n[exit code 1]\n</tool_response>",
            ]  # fmt: skip
        if problem:
            with pytest.raises(RuntimeError) as failed:
                bash(env)
            assert problem in str(failed.value) and f"harbor task {path / name}: " in str(failed.value)
            continue
        _, reward, terminated, truncated, info = bash(env)
        assert (reward, terminated, truncated) == (rewards["reward"], True, False)
        assert {key: info["metrics"][key] for key in rewards} == rewards
        assert info["success"] == (reward >= 1) and info["metrics"]["turns"] == len(commands) + 1


@pytest.mark.skipif(not HARBOR.exists(), reason="no harbor in .venv-harbor: docs/environments/harbor.md")
def test_rewards_are_those_of_harbor(bubblewrap: str, task: WriteTask) -> None:
    cases = [(str(task(name, case[0]) / name), case[1]) for name, case in CASES.items()]
    ran = subprocess.run([HARBOR, RUNNER, json.dumps(cases)], capture_output=True, text=True, check=True)
    for (name, (_, _, rewards, _)), found in zip(CASES.items(), json.loads(ran.stdout), strict=True):
        assert found[0] == f"Do {name}.", name
        if isinstance(rewards, str):
            assert found[2].startswith(rewards), (name, found)
        else:
            assert found[2] == rewards, (name, found)


#: What an agent may try, and what it must then read.
ATTACKS = {
    "exec 3<>/dev/tcp/127.0.0.1/9": "No route to host|Network is unreachable|Connection refused",
    "ls /sys/class/net /home /var /run /work 2>&1 | grep -vc 'No such'": "^0",
    "tr '\\0' '\\n' < /proc/1/environ; env": "(?s)^(?!.*SECRET)",
    "ls /tests; cat /tests/test.sh": "No such file",
    "touch /usr/bin/x; echo > /etc/passwd": "Read-only file system.*\n.*Read-only",
    "mv /tests /t; mv /logs/verifier /v; ln -sf /bin/true /bin/bash": "busy.*\n.*busy.*\n.*Read-only",
    "ps -e 2>/dev/null | wc -l; ls -d /proc/[0-9]* | wc -l": r"^\d\n\d$",
    "kill -9 -1; echo alive": "",
}


def test_bubblewrap_holds(bubblewrap: str, task: WriteTask, opened: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.setenv("SECRET_KEY", "1")
    env = opened(task(toml='[environment]\nenv = {MODE = "x"}\n[verifier]\nenv = {JUDGE = "y"}\n'), bubblewrap)
    started(env)
    for command, told in ATTACKS.items():
        said = bash(env, command)[0].removeprefix("<tool_response>\n").removesuffix("\n</tool_response>")
        assert re.search(told, said), (command, said)
    assert "x-\n" in bash(env, "echo $MODE-$JUDGE")[0]
    assert bash(env)[1] == 0.0


def test_limits_end_a_command_and_all_that_it_started(kind: str, task: WriteTask, opened: Callable[..., Any]) -> None:
    mark, away = f"{uuid.uuid4().int % 10**9}", "" if kind in CONTAINERS else "setsid"
    env = opened(task(toml="[agent]\ntimeout_sec = 1.5\n"), kind, command_timeout_s=0.7)
    started(env)
    said, _, _, truncated, info = bash(env, f"echo a; {away} sleep {mark} & sleep {mark}")
    assert "a\n[killed: more than 0.7 s" in said and info["metrics"]["timeouts"] == 1 and not truncated
    assert kind in CONTAINERS or not children_running(mark, recursive=True)
    said, _, _, truncated, info = bash(env, "while :; do echo yyyyyyyyyyyyyyyyyyyyy; done")
    assert "[cut: " in said and len(said) < 8200 and info["metrics"]["timeouts"] == 2
    said, reward, terminated, truncated, _ = bash(env, f"sleep {mark}", "echo -n hi > out.txt")
    assert truncated and not terminated and reward == 0.0 and "not run: the time of the episode is over" in said
    env = opened(task("hangs", f"sleep {mark}", "[verifier]\ntimeout_sec = 0.5\n"), kind, max_turns=2)
    started(env, "hangs")
    assert bash(env, "true")[2:4] == (False, False)
    with pytest.raises(RuntimeError, match=r"hangs: tests/test.sh did not end within 0.5 s"):
        bash(env, "true")  # the last turn
    assert kind in CONTAINERS or not children_running(mark, recursive=True)


def test_memory_is_limited(bubblewrap: str, task: WriteTask, opened: Callable[..., Any]) -> None:
    hungry = "python3 -c 'print(len(bytearray({} << 20)))' 2>&1 | tail -1"
    for toml, enough in (("", 100), ("[environment]\nmemory_mb = 400\n", 300), ('[environment]\nmemory = "1G"\n', 900)):
        load_tasks.cache_clear()
        env = opened(task(toml=toml), bubblewrap, memory_mb=200)
        started(env)
        assert str(enough << 20) in bash(env, hungry.format(enough))[0]
        assert "MemoryError" in bash(env, hungry.format(enough + 200))[0]


def test_every_episode_has_fresh_files_which_are_removed(
    kind: str, task: WriteTask, opened: Callable[..., Any]
) -> None:
    env = opened(task(), kind)
    folders = []
    for _ in range(2):
        started(env)
        assert "note\n" in bash(env, "cat note.txt")[0]
        bash(env, "echo x > note.txt; mkdir closed; chmod 0 closed")
        folders.append(env._sandbox.folder)
    env.close()
    assert len({*folders}) == 2 and not any(folder.exists() for folder in folders)
    with pytest.raises(RuntimeError, match="call reset"):
        bash(env)
    assert (task() / "one" / "environment" / "note.txt").read_text() == "note\n"


RUNS_UNTIL_KILLED = """
import sys
from rl_agents.background import settled
from rl_agents.envs.base import named_env
from rl_agents.tools.calls import ToolCall, write_response
env = named_env("harbor", path=sys.argv[1], sandbox=sys.argv[2]).unwrapped
settled(env.reset(seed=1))
print(env._sandbox.folder, flush=True)
settled(env.step(write_response("", [ToolCall("bash", {"command": f"touch begun; sleep {sys.argv[3]}"})])))
"""


def test_a_killed_run_leaves_nothing(kind: str, task: WriteTask) -> None:
    mark = f"{uuid.uuid4().int % 10**9}"
    words = [sys.executable, "-c", RUNS_UNTIL_KILLED, str(task()), kind, mark]
    runner = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert runner.stdout is not None
    folder = Path(runner.stdout.readline().strip())
    begun = folder / "root" / "app" / "begun"
    assert folder.is_dir()
    while kind not in CONTAINERS and not begun.exists() and runner.poll() is None:
        threading.Event().wait(0.02)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    while folder.exists() or processes_with(mark) or (kind in CONTAINERS and containers(kind, folder.name)):
        threading.Event().wait(0.02)


def processes_with(mark: str) -> bool:
    return subprocess.run(["pgrep", "-f", f"sleep {mark}"], capture_output=True).returncode == 0


def containers(engine: str, name: str) -> str:
    return subprocess.run([engine, "ps", "-aq", "--filter", f"name={name}"], capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({}, {"path": ""}, "environment harbor needs env.path=FOLDER"),
        ({}, {"path": "{}/task"}, "/task: there is no NAME/task.toml in it, nor train/NAME/task.toml and "
         "test/NAME/task.toml; did you mean 'tasks'?"),
        ({}, {"path": "{}/tasks/one/tests"}, "there is no NAME/task.toml in it"),
        ({"tests/test.sh": None}, {}, "only tasks with tests/test.sh"),
        ({"instruction.md": None, "instructions.md": "x"}, {},
         "/tasks/one/instruction.md: no such file or directory; did you mean 'instructions.md'?"),
        ({"environment/Dockerfile": None}, {}, "one Dockerfile or environment.docker_image"),
        ({"environment/docker-compose.yaml": "x"}, {}, "without docker-compose.yaml"),
        ({"task.toml": "a = 1\n[agent"}, {}, "/tasks/one/task.toml:2: not TOML: Expected ']' at the end of a table"),
        ({"task.toml": "a = 1\nb = [\n1,"}, {}, "/tasks/one/task.toml:3: not TOML: "),
        ({"task.toml": "[agent]\ntimeout_sec = 'long'"}, {}, "/task.toml: agent.timeout_sec='long' is not supported: "),
        ({"task.toml": "[[steps]]\nname = 'a'"}, {}, "task.toml: steps=[{'name': 'a'}] is not supported"),
        ({"task.toml": "[environment]\nos = 'windows'"}, {}, "task.toml: environment.os='windows' is not supported"),
        ({"task.toml": "[verifier]\nenv = {K = '${OPENAI_API_KEY}'}"}, {}, "verifier.env.K='${OPENAI_API_KEY}' is not"),
        ({"environment/Dockerfile": "FROM a\nRUN \\\n  pip install x\n"}, {},
         "'RUN pip install x' in its environment needs podman or docker; env.sandbox is bubblewrap, and env.build"),
        ({"environment/Dockerfile": "FROM a\nCOPY --from=b x y"}, {}, "'COPY --from=b x y' in its environment needs"),
        ({"environment/Dockerfile": None, "task.toml": "[environment]\ndocker_image = 'a'"}, {}, "'docker_image a' in"),
        ({}, {"reward": "reward_"}, "env.reward: unknown reward 'reward_': did you mean 'reward'?"),
        ({}, {"task": "onne"}, "unknown harbor task 'onne': did you mean 'one'?"),
        ({"environment/Dockerfile": "FROM a\nCOPY nothing /app"}, {}, "COPY nothing /app: no such file in"),
        ({"environment/Dockerfile": "FROM a\nCOPY ../tests /app"}, {}, "COPY ../tests /app leads out of the folder"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(
    files: dict[str, Any], options: dict[str, Any], message: str, bubblewrap: str, task: WriteTask,
    opened: Callable[..., Any], tmp_path: Path,
) -> None:  # fmt: skip
    given = {"path": str(task(**files)), "sandbox": bubblewrap}
    given |= {name: value.format(tmp_path) for name, value in options.items() if name != "task"}
    with pytest.raises(InputError) as error:
        task_ids("harbor", "train", given)
        env = opened(given.pop("path"), **given)
        started(env, options.get("task", "one"))
        bash(env)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_without_isolation_it_is_refused(task: WriteTask, monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    model = str(save_chat_model(tmp_path / "model"))
    given = ["--env", "harbor", "--model", model, "--output", str(tmp_path / "run"), "--set", f"env.path={task()}"]
    assert main(["--algo", "grpo", "--local", *given]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert (
        "no isolation for a model's commands (podman: " in line
        and "bubblewrap: " in line
        and "env.sandbox=none" in line
    )
    assert not (tmp_path / "run").exists()


def test_what_the_sandbox_lacks_is_said_once(bubblewrap: str, task: WriteTask, opened: Any, capsys: Any) -> None:
    task("one")
    path = task("two", docker="FROM debian:12\n# tools\nRUN apt-get install -y jq\nWORKDIR /srv\nCOPY *.txt data/\n")
    env = opened(path, bubblewrap, build="ignore")
    started(env, "two")
    assert "/srv\ndata\nnote.txt\n" in bash(env, "pwd; ls; ls data")[0]
    opened(path, bubblewrap, build="ignore")
    said = capsys.readouterr().err
    assert said.count(f"uses this machine's programs instead of 'FROM {IMAGE}'") == 1
    assert (
        said.count("two: env.sandbox=bubblewrap uses this machine's programs instead of 'RUN apt-get install -y jq'")
        == 1
    )


#: Instructions of a Dockerfile -> the files below the working directory, which is /app/w.
COPIES = {
    "COPY . .": ["Dockerfile", "a.txt", "d/b.txt"],
    "COPY a.txt d ./": ["a.txt", "b.txt"],
    "COPY a.txt new.txt": ["new.txt"],
    "COPY --chown=1:1 *.txt sub/": ["sub/a.txt"],
    "COPY d /app/w/e": ["e/b.txt"],
    "COPY a.txt /a.txt": [],
    "RUN true": [],
}


def test_copies_are_those_of_a_dockerfile(task: WriteTask, tmp_path: Path) -> None:
    for number, (line, files) in enumerate(COPIES.items()):
        docker = f"FROM x\nWORKDIR /app\nWORKDIR w\n{line}\n"
        path = task(
            f"t{number}",
            docker=docker,
            **{"environment/note.txt": None, "environment/a.txt": "a", "environment/d/b.txt": "b"},
        )
        made = load_tasks(HarborOptions(path=str(path / f"t{number}"), build="ignore"), "none")["train"][f"t{number}"]
        root = tmp_path / f"root{number}"
        root.mkdir()
        assert made.place(root) == "/app/w"
        home = root / "app" / "w"
        assert sorted(str(file.relative_to(home)) for file in home.rglob("*") if file.is_file()) == files, line
        assert (root / "a.txt").exists() == (line == "COPY a.txt /a.txt")


def test_tasks_are_split(task: WriteTask, tmp_path: Path) -> None:
    path, *_ = [task(f"t{number}") for number in range(20)]
    given = {"path": str(path), "sandbox": "none"}
    train, test = task_ids("harbor", "train", given), task_ids("harbor", "test", given)
    assert len(train) == 18 and len(test) == 2 and not {*train} & {*test}
    alone = {"path": str(path / "t0"), "sandbox": "none"}
    assert task_ids("harbor", "train", alone) == task_ids("harbor", "test", alone) == ["t0"]
    example = {"path": str(EXAMPLE), "sandbox": "none"}
    assert len(task_ids("harbor", "train", example)) == 8 and len(task_ids("harbor", "test", example)) == 4


def test_a_file_that_is_no_text_and_a_task_of_both_sets_are_named(task: WriteTask, tmp_path: Path) -> None:
    (task() / "one" / "instruction.md").write_bytes(b"a\xff")
    with pytest.raises(InputError, match=r"/one/instruction\.md: not UTF-8 \(byte 0xff\)"):
        task_ids("harbor", "train", {"path": str(tmp_path / "tasks"), "sandbox": "none"})
    for part in ("train", "test"):
        shutil.copytree(EXAMPLE / "test", tmp_path / part)
    with pytest.raises(InputError, match="the task box-blue-3 is in train and in test"):
        task_ids("harbor", "train", {"path": str(tmp_path), "sandbox": "none"})


def test_the_player_of_the_page_solves_its_example(bubblewrap: str) -> None:
    keys = {"path": str(EXAMPLE), "sandbox": bubblewrap, "player": f"{EXAMPLE / 'shell_player.py'}:play"}
    options = read_env_options(env_spec("harbor"), keys)
    starter, task = starter_spec("harbor", keys), task_ids("harbor", "train", keys)[0]
    played = [starter.demonstrate(task, random.Random(seed), options) for seed in range(4)]
    assert any("gold" in seen for turns in played for seen, _ in turns[1:])
    assert all('"bash"' in turns[0][1] for turns in played)
