"""Modules of the user's own: the files of docs/examples/plugins, and errors."""

import json
import pickle
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from plugin_folder import EXAMPLES, NAMES, ROOT, as_a_new_process

from rl_agents import errors, plugins
from rl_agents.algorithms import Settings
from rl_agents.background import at_once, wait
from rl_agents.cli import main
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.envs import base
from rl_agents.errors import InputError
from rl_agents.reporting.trackers import TRACKERS, TrackedRun
from rl_agents.rewards.base import MAX_HANGS, make_reward
from rl_agents.rewards.judges import JudgeError, make_judge
from rl_agents.rewards.reading import Reading
from rl_agents.rewards.verifiers import VerifierOptions, assess, make_verifier, self_check
from rl_agents.traces.desk import desk_turns

IMPORTS = [word for name in NAMES for word in ("--import", name)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder with the example's files; registrations are undone after the test."""
    for name in NAMES:
        shutil.copy(EXAMPLES / f"{name}.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
    with as_a_new_process(tmp_path):
        yield tmp_path


def test_threads_find_modules_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that empty Python 3.11's caches at once delete the same entry, and the second has a KeyError."""
    names = [f"found_at_once_{number}" for number in range(400)]
    for name in names:
        (folder / f"{name}.py").touch()
    monkeypatch.setattr(sys, "path", [*(str(folder / f"none-{number}") for number in range(40)), str(folder)])
    every = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert [home.__name__ for home in threads.map(plugins.own_module, names, names)] == names
    finally:
        sys.setswitchinterval(every)


def test_the_list_shows_where_a_plugin_comes_from(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = []
    for kind in ((), ("rewards",)):
        assert main(["list", *kind, "--json", *IMPORTS]) == 0
        kinds += json.loads(capsys.readouterr().out).values()
    entries = {entry["name"]: entry["summary"] for kind in kinds for entry in kind}
    assert entries["own-median"].endswith("(plugin median_algorithm)")
    assert entries["own-lock"].endswith("(plugin lock_environment)")
    assert entries["own-brief"].endswith("(plugin brief_reward)")
    for words, near in ((["--algo", "own-medan"], "own-median"), (["--env", "own-lok"], "own-lock")):
        assert main([*IMPORTS, *words]) == 2 and f"did you mean '{near}'?" in capsys.readouterr().err


BROKEN = {
    "typo": (
        "import gymnasium\nMine = Gym\n",
        "module typo cannot be imported: NameError: name 'Gym' is not defined (typo.py:2)",
    ),
    "twice": (
        "from rl_agents.algorithms import ALGORITHMS, register\nregister(ALGORITHMS['grpo'])\n",
        "plugin twice registers the algorithm 'grpo', which is built in: give it another name",
    ),
    "leaves": (
        "import sys\nsys.exit('no license')\n",
        "module leaves cannot be imported: SystemExit: no license (leaves.py:2)",
    ),
    "nowhere": ("", "plugin nowhere: there is no module nowhere in"),
    "exact": (
        "from rl_agents.rewards.verifiers import verifier\nverifier('exact', '')(max)\n",
        "plugin exact registers the verifier 'exact', which is built in: give it another name",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_line_and_exit_code_2(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, message = BROKEN[name]
    if text:
        (folder / f"{name}.py").write_text(text)
    assert main(["list", "--import", name]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not plugins.ASKED


OWN = """import asyncio
from rl_agents.rewards.base import reward
from rl_agents.rewards.judges import judge
from rl_agents.rewards.verifiers import verifier

@verifier("own-half", "the expert's action, or half of it")
async def half(turn, response):
    await asyncio.sleep(0)
    return 1.0 if response.calls == turn.calls else 0.5

@verifier("own-wild", "nothing that anybody could use")
def wild(turn, response):
    return 7 if turn.calls else 1 / 0

@judge("own-word", "one word")
def word(reading, asked):
    return {"verdict": "yes" in reading.answer, "complete": 2}[asked]

@judge("own-patient", "asks somebody")
async def patient(reading, asked):
    raise TimeoutError("nobody is there")

@reward("own-thanks", "asks somebody")
async def thanked(trajectory):
    await asyncio.sleep(0)
    return {"0": 0.25, "1": "nan"}[trajectory.task_id]

@reward("own-wrapped", "a plain function that returns a coroutine, as decorators do")
def wrapped(trajectory):
    return thanked(trajectory)

@judge("own-wrapped", "the same")
def wrapped_judge(reading, asked):
    return wrapped(type("Trajectory", (), {"task_id": reading.answer}))
"""


def test_own_verifiers(folder: Path) -> None:
    (folder / "own.py").write_text(OWN)
    plugins.load(["own"])
    task, options = base.task_ids("pivot", "train", {})[0], {"verifier": "own-half"}
    env = base.synchronous(base.make_env("pivot", options))
    env.reset(seed=0, options={"task_id": task})
    observation, reward, *_, info = env.step("I would rather not.")
    assert (observation, reward, info["success"]) == ("own-half: 0.5", 0.5, False)
    env.reset(seed=0, options={"task_id": task})
    assert env.step(info["references"][0])[1] == 1.0
    with pytest.raises(InputError, match=r"env\.verifier=own-wild: 0 of .* returned 7, not a number from 0 to 1"):
        base.make_env("pivot", {"verifier": "own-wild"})


def test_own_judges(folder: Path) -> None:
    (folder / "own.py").write_text(OWN)
    word = make_judge(Settings.from_dict({"plugins": ["own"], "judge": "own-word"}))
    readings = [Reading((), answer, True, (), "?", ()) for answer in ("oh yes", "no")]
    assert [wait(word.verdict(reading)) for reading in readings] == [1.0, 0.0] and not word.remote
    with pytest.raises(JudgeError, match=r"judge own-word: .*word\(\) returned 2, not a number from 0 to 1 \(own"):
        wait(word.complete(readings[0]))
    patient = make_judge(Settings.from_dict({"judge": "own-patient"}))
    with pytest.raises(JudgeError, match="judge own-patient: TimeoutError: nobody is there"):
        wait(patient.verdict(readings[0]))
    assert patient.remote, "asked for all answers side by side, and while others play"
    long = base.make_env("long_form_qa", {"judge": "own-patient", "prompt": "compact"})
    long.reset(seed=0)
    wrapped = make_judge(Settings.from_dict({"judge": "own-wrapped"}))
    assert at_once(wrapped.verdict(replace(readings[0], answer="0"))) == 0.25
    with pytest.raises(JudgeError, match="nobody is there"):
        base.synchronous(long).step("<answer> No . </answer>")


def test_an_own_reward_cannot_change_the_reported_success(folder: Path) -> None:
    source = """
from rl_agents.rewards.base import reward

@reward("own-careless", "assigns what it should only read")
def careless(trajectory):
    trajectory.success = True
    trajectory.steps[0].reward = 7.0
    return 0.5
"""
    (folder / "careless.py").write_text(source)
    played = Trajectory("t", 0, 0, 0, [Step([1], [2], [0.0], 0, "stop", "", "", "", reward=1.0)])
    make_reward(Settings.from_dict({"plugins": ["careless"], "reward": "own-careless"})).apply([played])
    assert (played.success, played.episode_return, played.facts) == (False, 0.5, {"environment_return": 1.0})


def test_own_rewards(folder: Path) -> None:
    """A coroutine is awaited, and a score that is no finite number fails its episode instead of the weights."""
    (folder / "own.py").write_text(OWN)
    own, wrapped = (
        make_reward(Settings.from_dict({"plugins": ["own"], "reward": name})) for name in ("own-thanks", "own-wrapped")
    )
    step = Step([1], [2], [0.0], 0, "stop", "", "", "", reward=1.0)
    played = [Trajectory(name, 0, 0, 0, [replace(step), replace(step)]) for name in "012"]
    own.apply(played)
    assert own.waits and [step.reward for step in played[0].steps] == [0.0, 0.25] and not played[0].failed
    assert [t.end_cause for t in played[1:]] == [
        "judge_error: reward own-thanks: ValueError: thanked() returned 'nan', not a finite number (own.py:23)",
        "judge_error: reward own-thanks: KeyError: '2' (own.py:26)",
    ]
    again = [Trajectory("0", 0, 0, 0, [replace(step), replace(step)])]
    wrapped.apply(again)
    assert again[0].episode_return == 0.25 and not wrapped.waits


HANGS = """import asyncio, threading
from rl_agents.rewards.base import reward
from rl_agents.rewards.judges import judge

def hangs(task):
    while task == "1":  # of one episode
        pass
    return 0.5

@reward("own-loop", "computes for ever")
def loops(trajectory):
    return hangs(trajectory.task_id)

@reward("own-silent", "waits for ever")
async def silent(trajectory):
    await (asyncio.Event().wait() if trajectory.task_id == "1" else asyncio.sleep(0))
    return 0.5

@reward("own-blocks", "computes for ever in a coroutine")
async def blocks(trajectory):
    return hangs(trajectory.task_id)

@judge("own-slow", "computes for ever")
def slow(reading, asked):
    return hangs("1")

@judge("own-mute", "waits for ever")
async def mute(reading, asked):
    await asyncio.Event().wait()
"""


@pytest.mark.parametrize(
    ("name", "function", "elsewhere"),
    [("loop", "loops", False), ("loop", "loops", True), ("silent", "silent", False), ("blocks", "blocks", True)],
)
def test_a_reward_that_never_returns_fails_its_episode(
    folder: Path, monkeypatch, capsys, name: str, function: str, elsewhere: bool
) -> None:
    monkeypatch.setattr(errors, "_reported", set())
    (folder / "hangs.py").write_text(HANGS)
    settings = {"plugins": ["hangs"], "reward": f"own-{name}", "reward_timeout_s": 0.5}
    own, step = make_reward(Settings.from_dict(settings)), Step([1], [2], [0.0], 0, "stop", "", "", "", reward=1.0)
    played = [Trajectory(task, 0, 0, 0, [replace(step)]) for task in "0123"]
    if elsewhere:
        thread = threading.Thread(target=own.apply, args=(played,))
        thread.start()
        thread.join()
    else:
        own.apply(played)
    late = rf"TimeoutError: {function}\(\) gave no answer within 0\.5 s \(reward_timeout_s\) \(hangs\.py:\d+\)"
    assert re.fullmatch(rf"judge_error: reward own-{name}: {late}", played[1].end_cause) and played[1].failed
    # A blocked loop scores no other.
    assert name == "blocks" or [t.episode_return for t in played if not t.failed] == [0.5] * 3
    assert capsys.readouterr().err.count("such episodes fail") == 1
    again = [Trajectory("0", 0, 0, 0, [replace(step)])]
    own.apply(again)
    assert again[0].episode_return == 0.5, "the next batch is scored"


def test_a_reward_that_always_hangs_costs_three_limits(folder: Path) -> None:
    (folder / "hangs.py").write_text(HANGS)
    settings = Settings.from_dict({"plugins": ["hangs"], "reward": "own-loop", "reward_timeout_s": 0.05})
    step = Step([1], [2], [0.0], 0, "stop", "", "", "")
    played = [Trajectory("1", 0, 0, number, [replace(step)]) for number in range(64)]
    own = make_reward(settings)
    calls, score = [], own.score
    replace(own, score=lambda trajectory: calls.append(1) or score(trajectory)).apply(played)
    assert len(calls) == MAX_HANGS and all(t.failed for t in played)


def test_judges_have_a_limit(folder: Path) -> None:
    (folder / "hangs.py").write_text(HANGS)
    for name, function in (("own-slow", "slow"), ("own-mute", "mute")):
        own = make_judge(Settings.from_dict({"plugins": ["hangs"], "judge": name, "judge_timeout_s": 0.2}))
        with pytest.raises(
            JudgeError, match=rf"{function}\(\) gave no answer within 0.2 s \(judge_timeout_s\) \(hangs"
        ):
            wait(own.verdict(Reading((), "a", True, (), "?", ())))


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ("--env pivot --set env.verifier=own-hlaf", "unknown env.verifier 'own-hlaf': did you mean 'own-half'?"),
        ("--set reward=prs prs_form=long judge=own-wrod", "unknown judge 'own-wrod': did you mean 'own-word'?"),
        ("--env long_form_qa --set env.judge=own-wrod", "unknown env.judge 'own-wrod': did you mean 'own-word'?"),
        ("--env long_form_qa --set env.judge=own-word env.judge_url=http://x", "asks no server"),
        ("--env blackbox --set env.agent=asker env.tasks=guess_numbers", "env.agent=asker: write module:function"),
    ],
)
def test_wrong_verifiers_judges_and_agents(words: str, near: str, folder: Path, capsys) -> None:
    (folder / "own.py").write_text(OWN)
    assert main(["--import", "own", "--local", *words.split()]) == 2
    error = capsys.readouterr().err
    assert near in error and error.count("\n") == 1, error


def test_settings_bring_their_plugins_along(folder: Path) -> None:
    """A process that gets settings, or reads a run's config.yaml, loads their plugins."""
    (folder / "sent.py").write_text(
        "import pickle, sys\nsettings = pickle.load(open('settings', 'rb'))\n"
        "from rl_agents.algorithms import ALGORITHMS, Settings\n"
        "assert settings.algo in ALGORITHMS and settings.own_median_weight == 0.5\n"
        "assert Settings().own_median_weight == 1.0\n"
    )
    settings = Settings.from_dict({"plugins": ["median_algorithm.py"], "algo": "own-median", "own_median_weight": 0.5})
    assert settings.plugins == [str(folder / "median_algorithm.py")]
    assert Settings.restored(settings.to_dict()).to_dict() == settings.to_dict()
    (folder / "settings").write_bytes(pickle.dumps(settings))
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    shutil.move(folder / "settings", elsewhere)
    shutil.move(folder / "sent.py", elsewhere)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "sent.py"], cwd=elsewhere, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_entry_points_are_loaded_and_named(folder: Path) -> None:
    info = folder / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rl_agents.rewards]\nbrief = brief_reward\n")
    code = (
        "import sys; sys.path.insert(0, '.'); import rl_agents.rewards.base; from rl_agents import plugins\n"
        "plugins.load(); print(plugins.ORIGINS['reward', 'own-brief'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "entry point brief of package acme", done.stderr
    (folder / "brief_reward.py").write_text("1 / 0\n")
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert (
        "entry point brief of package acme: module brief_reward" in done.stderr and "(brief_reward.py:1)" in done.stderr
    )


def example(folder: Path, name: str) -> None:
    shutil.copy(EXAMPLES / f"{name}.py", folder)
    plugins.load([name])


def test_the_example_of_a_verifier(folder: Path) -> None:
    example(folder, "tools_verifier")
    verifier, turns = make_verifier(VerifierOptions(verifier="own-tools")), desk_turns()
    assert not self_check(verifier, turns).failures
    called = next(turn for turn in turns if turn.calls)
    assert assess(verifier, called, "I would rather not.").score == 0.0


def test_the_example_of_a_judge(folder: Path) -> None:
    example(folder, "words_judge")
    judge = make_judge(Settings.from_dict({"judge": "own-words"}))
    readings = [Reading((), answer, True, ("Rome",), "Where does Ada live?", ()) for answer in ("In Rome.", "In Oslo.")]
    assert [wait(judge.verdict(reading)) for reading in readings] == [1.0, 0.0]


def test_the_example_of_a_tracker(folder: Path) -> None:
    example(folder, "file_tracker")
    tracker = TRACKERS["own-file"].open(TrackedRun(folder, "project", "run", "", {}))
    tracker.log(1, {"actor/lr": 0.1})
    tracker.log(2, {"eval/success_rate": 0.5})
    assert (folder / "success.txt").read_text() == "2 0.5\n"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("games/shpo.py", "/games/shpo.py: no such file; did you mean 'shop.py'?"),
        ("gmaes/shop.py", "gmaes/shop.py: no such file; did you mean 'games'?"),
        ("games/xyzzy.py", "games/xyzzy.py: no such file"),
        ("games/deep/shop.py", "games/deep/shop.py: no such file"),
        ("games.shpo", "did you mean 'shop.py'? Else run from the folder that contains games.py"),
        ("shpo", "there is no module shpo in {folder} or among the installed ones; run from"),
    ],
)
def test_the_nearest_file_of_its_own_folder_is_named(folder: Path, capsys, wanted: str, message: str) -> None:
    """A suffix says nothing: setup.py is no misspelled shpo.py."""
    (folder / "games").mkdir()
    for name in ("setup.py", "games/shop.py", "games/shop.md", "games/setup.py"):
        (folder / name).write_text("")
    assert main(["list", "--import", wanted]) == 2
    error = capsys.readouterr().err.strip()
    ends = message.format(folder=folder)
    assert error.endswith(ends) if "xyzzy" in wanted or "deep" in wanted else ends in error
