"""The real engine in processes of its own: same game as the native engine, and what happens when workers die."""

from __future__ import annotations

import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from rl_agents.envs.alfworld import backends
from rl_agents.envs.alfworld.backends import BranchPoint, Server, TextWorldBackend, WorkerError, game_key
from rl_agents.envs.alfworld.generator import generated_file
from rl_agents.envs.alfworld.native import NativeGame
from rl_agents.errors import InputError


def textworld_python() -> str | None:
    """An interpreter with the real engine, if there is one."""
    if named := os.environ.get(backends.PYTHON_VARIABLE):
        return named
    return sys.executable if importlib.util.find_spec("textworld") and importlib.util.find_spec("alfworld") else None


PYTHON = textworld_python()
needs_textworld = pytest.mark.skipif(
    PYTHON is None, reason=f"no TextWorld: pip install -e '.[alfworld]' or set {backends.PYTHON_VARIABLE}"
)
GAME = generated_file("small/heat/kitchen-3/17")
OTHER = generated_file("small/look/bedroom-2/1")


@pytest.fixture
def backend() -> Iterator[TextWorldBackend]:
    yield (one := TextWorldBackend(PYTHON))
    one.close()


def tree(server: Server) -> list[psutil.Process]:
    """The root process and all copies."""
    assert server._process is not None
    root = psutil.Process(server._process.pid)
    return [root, *root.children(recursive=True)]


def wait_until_gone(pids: list[int], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < end, [pid for pid in pids if alive(pid)]
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether the process exists, as a zombie too."""
    return psutil.pid_exists(pid)


@needs_textworld
@pytest.mark.parametrize("game", [GAME, OTHER], ids=["heat", "look"])
def test_walkthrough_wins_and_equals_the_native_engine_step_by_step(backend: TextWorldBackend, game) -> None:
    native = NativeGame.compile(game)
    state = native.start()
    seen = backend.reset(game)
    assert seen.text == native.intro(state)
    for command in ["look", "help", *(game.walkthrough or ())]:
        assert (set(seen.admissible), seen.won) == (set(native.admissible(state)), False)
        result, seen = native.step(state, command), backend.step(command)
        state = result.state
        assert (seen.text, seen.won) == (result.feedback, result.won)
    assert seen.won


@needs_textworld
@pytest.mark.parametrize(
    "command", ["", "fly", "x" * 100_000, "nimm Äpfel 🍎", "\ud800", "look\nlook", "{1/0}", "</s>"]
)
def test_odd_commands_do_nothing(backend: TextWorldBackend, command: str) -> None:
    before = backend.reset(GAME)
    seen = backend.step(command)
    assert (seen.text, seen.admissible, seen.won) == ("Nothing happens.", before.admissible, False)


@needs_textworld
def test_episodes_of_a_game_are_copies_and_do_not_meet(backend: TextWorldBackend) -> None:
    other = TextWorldBackend(PYTHON)
    first = backend.reset(GAME)
    assert other.reset(GAME) == first
    for command in GAME.walkthrough or ():
        won = backend.step(command).won
    assert won
    assert other.step("look").won is False
    assert backend.pid != other.pid
    other.close()


@needs_textworld
def test_threads_that_start_the_same_game_load_it_once() -> None:
    server = Server(str(PYTHON))
    backends = [TextWorldBackend(PYTHON) for _ in range(5)]
    for one in backends:
        one._server = server
    with ThreadPoolExecutor(5) as pool:
        seen = list(pool.map(lambda one: one.reset(GAME), backends))
    assert len(set(seen)) == 1
    assert len({one.pid for one in backends}) == 5
    assert len(tree(server)) == 1 + 1 + 5  # the root, the process that loaded the game, the episodes
    server.close()


@needs_textworld
def test_snapshot_is_restored_by_a_copy_or_by_a_replay(backend: TextWorldBackend) -> None:
    commands = GAME.walkthrough or ()
    backend.reset(GAME)
    for command in commands[:3]:
        seen = backend.step(command)
    point = pickle.loads(pickle.dumps(backend.snapshot()))
    assert point == BranchPoint(game_key(GAME), commands[:3])
    rest = [backend.step(command) for command in commands[3:]]
    assert rest[-1].won
    assert backend.restore(GAME, point) == seen
    assert [backend.step(command) for command in commands[3:]] == rest
    template, _ = backend._server._templates.pop(point)  # as if others had needed the room
    template.close()
    assert backend.restore(GAME, point) == seen
    assert [backend.step(command) for command in commands[3:]] == rest
    with pytest.raises(ValueError, match="another game"):
        backend.restore(OTHER, point)


@needs_textworld
def test_few_processes_are_kept(backend: TextWorldBackend) -> None:
    server = Server(str(PYTHON), kept=3)
    backend._server = server
    backend.reset(GAME)
    for _ in range(6):
        backend.step("look")
        backend.snapshot()
    backend.close()
    assert len(server._templates) == 3
    end = time.monotonic() + 5
    while len(tree(server)) > 4 and time.monotonic() < end:
        time.sleep(0.02)
    assert len(tree(server)) == 4
    pids = [process.pid for process in tree(server)]
    server.close()
    wait_until_gone(pids)


@needs_textworld
def test_killed_worker_ends_its_episode_only(backend: TextWorldBackend) -> None:
    other = TextWorldBackend(PYTHON)
    other.reset(GAME)
    first = backend.reset(GAME)
    pid = backend.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match=rf"TextWorld worker {pid} ended during: step 'look'"):
        backend.step("look")
    with pytest.raises(RuntimeError, match="reset first"):
        backend.step("look")
    wait_until_gone([pid])
    assert other.step("inventory").text == "You are not carrying anything."
    assert backend.reset(GAME) == first
    other.close()


@needs_textworld
def test_silent_worker_is_named_and_killed(backend: TextWorldBackend) -> None:
    backend.reset(GAME)
    backend._timeout_s = 0.3
    pid = backend.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(WorkerError, match=rf"TextWorld worker {pid}: no answer within 0.3 s to: step 'go to fridge 1'"):
        backend.step("go to fridge 1")
    wait_until_gone([pid])


@needs_textworld
def test_after_the_death_of_root_and_templates_new_ones_are_started(backend: TextWorldBackend) -> None:
    first = backend.reset(GAME)
    server = backend._server
    for process in tree(server):
        process.kill()
    with pytest.raises(WorkerError):
        backend.step("look")
    assert backend.reset(GAME) == first
    assert backend.reset(OTHER).text.endswith(".")


@needs_textworld
def test_grammar_with_other_expressions_than_names_is_refused(backend: TextWorldBackend, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    evil = GAME.grammar.replace("You close the {r.name}.", f"{{open('{trap}', 'w')}}")
    assert evil != GAME.grammar
    with pytest.raises(InputError, match="an expression that is not allowed"):
        backend.reset(replace(GAME, grammar=evil))
    evil = GAME.grammar.replace('template :: "close {r}"', 'template :: "close {r.__class__}"')
    with pytest.raises(InputError, match="an expression that is not allowed"):
        backend.reset(replace(GAME, grammar=evil))
    assert not trap.exists()


@needs_textworld
@pytest.mark.parametrize("part", ["domain", "grammar", "problem"])
def test_game_that_cannot_be_loaded_is_one_line(backend: TextWorldBackend, part: str) -> None:
    broken = replace(GAME, **{part: getattr(GAME, part)[:200]})
    with pytest.raises(InputError, match=r"TextWorld worker \d+: load small/heat/kitchen-3/17: \w+") as caught:
        backend.reset(broken)
    assert "\n" not in str(caught.value)
    assert backend.reset(GAME).won is False


@needs_textworld
def test_no_process_outlives_a_killed_client() -> None:
    program = (
        "import sys, time\n"
        "from rl_agents.envs.alfworld.generator import generated_file\n"
        "from rl_agents.envs.alfworld.backends import TextWorldBackend\n"
        "backend = TextWorldBackend(sys.argv[1])\n"
        "backend.reset(generated_file('small/heat/kitchen-3/17'))\n"
        "backend.snapshot()\n"
        "print(backend._server._process.pid, backend.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(backends.__file__).parents[3])}
    client = subprocess.Popen(
        [sys.executable, "-c", program, str(PYTHON)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert client.stdout is not None
    root, episode = (int(pid) for pid in client.stdout.readline().split())
    pids = [process.pid for process in psutil.Process(root).children(recursive=True)]
    assert episode in pids
    client.kill()
    client.wait()
    client.stdout.close()
    wait_until_gone(pids)


def test_interpreter_without_the_engine_is_an_input_error(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # no site-packages
    bare.chmod(0o755)
    with pytest.raises(InputError, match="the TextWorld engine does not start: ModuleNotFoundError: No module named"):
        TextWorldBackend(str(bare)).reset(GAME)
    with pytest.raises(InputError, match="cannot be run: No such file or directory"):
        TextWorldBackend(str(tmp_path / "nowhere")).reset(GAME)
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\necho out of luck >&2\n")
    silent.chmod(0o755)
    with pytest.raises(InputError, match="does not start: out of luck; pip install"):
        TextWorldBackend(str(silent)).reset(GAME)


def test_interpreter_is_taken_from_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(backends.PYTHON_VARIABLE, "/opt/tw/bin/python")
    assert backends.server().python == "/opt/tw/bin/python"
    monkeypatch.delenv(backends.PYTHON_VARIABLE)
    assert backends.server().python == sys.executable


@needs_textworld
@pytest.mark.ray
def test_it_works_in_ray_actors(ray_session: None) -> None:
    import ray

    @ray.remote(num_cpus=0.1)
    class Player:
        def play(self, python: str, task: str) -> tuple[bool, int]:
            backend = TextWorldBackend(python)
            game = generated_file(task)
            backend.reset(game)
            won = [backend.step(command).won for command in game.walkthrough or ()][-1]
            pid = backend._server._process.pid  # type: ignore[union-attr]
            backend.close()
            return won, pid

    players = [Player.remote() for _ in range(2)]
    answers = ray.get([player.play.remote(PYTHON, "small/heat/kitchen-3/17") for player in players])
    assert [won for won, _ in answers] == [True, True]
    pids = [pid for _, pid in answers]
    assert len(set(pids)) == 2
    for player in players:
        ray.kill(player)
    wait_until_gone(pids)
