"""An environment of the user's own, ``gymnasium:<module>:<id>``: its page's example as printed, and its errors."""

import importlib
import json
import linecache
import pickle
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium
import pytest

from rl_agents import errors, plugins
from rl_agents.cli import main
from rl_agents.envs.base import env_spec, make_env, read_env_options, starter_spec, task_ids
from rl_agents.errors import InputError
from rl_agents.rollout.branching import takes_snapshots
from rl_agents.rollout.env_calls import EnvFailure, read_step
from rl_agents.trainer.warm_start_folder import starter_dir

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "environments" / "gymnasium.md").read_text(encoding="utf-8")
LOCK = "gymnasium:lock:Lock"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's folder, with the page's ``lock.py``; modules that a test imports from it are forgotten."""
    found = re.search(r"This file is a complete example, `lock.py`:\n\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert found
    (tmp_path / "lock.py").write_text(found[1])
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])
    plugins.OWN_MODULES.clear()
    monkeypatch.setenv("RL_AGENTS_CACHE", str(tmp_path / "cache"))
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def write(folder: Path, body: str, name: str = "mine") -> None:
    """Write a module with an environment ``Mine`` whose class body ends in ``body``."""
    lines = [
        "import gymnasium", "from gymnasium.spaces import Text, Discrete", "", "class Mine(gymnasium.Env):",
        "    observation_space = action_space = Text(max_length=100)",
        "    def reset(self, *, seed=None, options=None):", "        self.got = options", "        return 'go', {}",
        "    def step(self, action):", "        return 'on', 0.25, False, False, {}",
        *(f"    {line}" for line in body.splitlines()),
    ]  # fmt: skip
    (folder / f"{name}.py").write_text("\n".join(lines) + "\n")


def printed_commands() -> list[list[str]]:
    """The page's commands after ``run.py``."""
    return [shlex.split(line) for line in re.findall(r"^    python \$RL/run\.py (.*)$", PAGE, re.MULTILINE)]


@pytest.mark.rllib
def test_the_example_as_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sft, grpo, search, evaluation = printed_commands()
    few = ["--set", "tasks_per_iteration=4", "group_size=4", "minibatches=1"]
    assert main([*sft, *few[:2], "minibatches=1", "iterations=2", "demonstrations=32"]) == 0
    grpo[grpo.index("--iterations") + 1] = "1"
    small = [*few, "eval_episodes=4", "--local"]
    assert main([*grpo, *small, "--output", "runs/NAME"]) == 0, capsys.readouterr().err
    output = capsys.readouterr()
    assert not re.search(r"success_return|become text|Traceback", output.out + output.err), "nothing is wrong with it"
    assert main([*search, "search_steps=8", *small, "--iterations", "1"]) == 0, capsys.readouterr().err
    assert main([*evaluation, "--local", "--episodes", "4", "--seeds", "1"]) == 0
    assert json.loads((folder / "models/lock/rl_agents.json").read_text())["env"] == LOCK


def test_everything_of_the_example_reaches_the_agent_loop(folder: Path) -> None:
    spec = env_spec(LOCK)
    assert (spec.max_turns, spec.progress_window) == (6, 2)
    train, test = task_ids(LOCK, "train", {}), task_ids(LOCK, "test", {})
    assert test[0] == "3 3" and len(test) == 300 and not set(train) & set(test) and len(train) == 600
    env = make_env(LOCK, {})
    env.reset(seed=1, options={"task_id": "29 30"})
    assert env.step("40")[4]["progress"] and env.step("50")[4]["progress"] is False
    assert takes_snapshots(env, "snapshot")
    state = pickle.loads(pickle.dumps(env.snapshot()))
    other = make_env(LOCK, {})
    other.restore(state)
    assert other.step("58")[0] == env.step("58")[0] == "lower"
    assert other.step("30")[1:3] == (1.0, True)
    with pytest.raises(InputError, match=r"unknown option .*'env\.train_tasks'"):
        read_env_options(spec, {"train_tasks": 3})


def test_its_demonstrator_makes_a_starter(folder: Path) -> None:
    starter = starter_spec(LOCK)
    options, rng = read_env_options(env_spec(LOCK), {}), random.Random(0)
    tokenizer, tasks = starter.build_tokenizer(), task_ids(LOCK, "train", {})
    texts = [text for task in tasks for turn in starter.demonstrate(task, rng, options, 0) for text in turn]
    assert not any(tokenizer.unk_token_id in tokenizer(text).input_ids for text in texts)
    assert tokenizer.tokenize("<think> 1 to 59 </think> 30") == ["<think>", "1", "to", "59", "</think>", "30"]
    longest = max(len(tokenizer(text).input_ids) for text in texts)
    assert longest < starter.defaults["max_response_tokens"] < tokenizer.model_max_length


def test_a_file_is_as_good_as_its_module(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "lock.py").rename(folder / "deep" / "bolt.py")
    assert env_spec("gymnasium:deep/bolt.py:Lock").max_turns == 6


def test_players_of_coroutines(folder: Path) -> None:
    write(
        folder,
        "max_turns = 2\nasync def reset(self, *, seed=None, options=None): return 'go', {}\n"
        "async def step(self, action): return 'on', 0.0, False, False, {}\n"
        "def demonstrate(self, observation, random): return observation * 2",
    )
    player, options = starter_spec("gymnasium:mine:Mine").demonstrate, env_spec("gymnasium:mine:Mine").options()
    assert player("seed-0", random.Random(0), options) == [("go", "gogo"), ("on", "onon")]


def test_sft_names_the_line_of_a_player_that_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "def demonstrate(self, observation, random): return self.memory")
    assert main(["sft", "--output", "out", "--env", "gymnasium:mine:Mine"]) == 2
    assert capsys.readouterr().err.endswith("object has no attribute 'memory' (mine.py:11)\n")


def test_a_starter_is_kept_until_a_file_of_its_class_changes(folder: Path) -> None:
    (folder / "own.py").write_text(
        "from mine import Mine\nWORD = 'open'\nclass Door(Mine):\n    max_turns = 2\n"
        "    def demonstrate(self, observation, random): return WORD\n"
    )

    def starter(body: str, word: str) -> Path:
        """Where the starter lies when the two modules say this, as a new process finds it."""
        write(folder, body)
        (folder / "own.py").write_text((folder / "own.py").read_text().replace("'open'", f"'{word}'"))
        for name in ("mine", "own"):
            sys.modules.pop(name, None)
        linecache.clearcache()
        importlib.invalidate_caches()
        return starter_dir("gymnasium:own:Door")

    first = starter("pass", "open")
    assert starter("pass", "open") == first
    others = {starter("shown = 'other'", "open"), starter("pass", "shut")}
    assert len(others | {first}) == 3, "of its base, and of its own"


def test_players_get_the_constructor_arguments_of_the_run(folder: Path) -> None:
    write(
        folder,
        "max_turns = 2\ndef __init__(self, word): self.word = word\n"
        "def demonstrate(self, observation, random): return self.word",
    )
    name, made = "gymnasium:mine:Mine", [{"kwargs": {"word": word}} for word in ("oak", "elm")]
    assert [starter_spec(name, keys).build_tokenizer().tokenize("oak elm").count("<unk>") for keys in made] == [1, 1]
    assert starter_spec(name, made[0]).defaults["env.kwargs"] == {"word": "oak"}
    assert len({starter_dir(name, options=keys) for keys in made}) == 2
    player, options = starter_spec(name, made[0]).demonstrate, read_env_options(env_spec(name), made[0])
    assert [action for _, action in player("seed-0", random.Random(0), options)][:1] == ["oak"]


def test_what_only_some_environments_have_is_passed_on(folder: Path) -> None:
    write(folder, "answer_instruction = 'Answer now.'\ndef render_window(self, task, history, observation): return 'w'")
    env = make_env("gymnasium:mine:Mine", {})
    assert env.answer_instruction == "Answer now." and env.render_window("", [], "") == "w"
    assert not hasattr(make_env(LOCK, {}), "render_window")
    with pytest.raises(InputError, match="no snapshot"):
        takes_snapshots(env, "snapshot")
    write(folder, "def snapshot(self): return None\ndef restore(self, state): pass", "timed")
    with (folder / "timed.py").open("a") as file:
        file.write("gymnasium.register('Limited-v0', entry_point='timed:Mine', max_episode_steps=3)\n")
    env, other = (make_env("gymnasium:timed:Limited-v0", {"success_return": 0.75}) for _ in range(2))
    env.reset(seed=0)
    env.step("a")
    env.step("b")
    other.restore(pickle.loads(pickle.dumps(env.snapshot())))
    *_, truncated, info = other.step("c")
    assert truncated and info["success"], "three steps, three rewards of a quarter"
    del gymnasium.registry["Limited-v0"]


def test_success_without_the_environments_word(folder: Path) -> None:
    write(folder, "")
    for wanted, won in ((None, [True, True]), (0.5, [False, True]), (0.6, [False, False])):
        env = make_env("gymnasium:mine:Mine", {"success_return": wanted})
        env.reset(seed=0)
        assert [env.step("x")[4]["success"] for _ in range(2)] == won
    write(folder, "action_space = Discrete(2)", "picks")
    env = make_env("gymnasium:picks:Mine", {"success_return": 1.0})
    env.reset(seed=0)
    env.step("1")
    assert env.step("no idea")[4]["success"] is False


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """Return the lines that were printed once since the last call."""
    monkeypatch.setattr(errors, "_reported", set())
    return lambda: [line for line in capsys.readouterr().err.splitlines() if line.startswith("[rl_agents] ")]


@pytest.mark.parametrize(
    ("answer", "options", "words"),
    [
        ("'on', 1.0, True, False, {'success': True}", {}, ""),
        ("'on', 1.0, True, False, {}", {"success_return": 1.0}, ""),
        ("'on', 1.0, False, False, {}", {}, "info has no 'success' at the end of an episode, so any return above 0"),
        ("'on', 1.0, True, False, {}", {}, "info has no 'success' at the end of an episode, so any return above 0"),
        (
            "{'price': 3}, 1.0, True, False, {'success': True}", {},
            "observations of type dict become text such as 'Observation: {'price': 3}'",
        ),
    ],
)  # fmt: skip
def test_what_the_adapter_assumes_is_said_once(folder: Path, reported, answer: str, options: dict, words: str) -> None:
    write(folder, f"def step(self, action): return {answer}")
    for _ in range(2):
        env = make_env("gymnasium:mine:Mine", options)
        for seed in range(2):
            env.reset(seed=seed)
            env.step("x")
    lines = reported()
    assert len(lines) == bool(words) and words in "".join(lines)


@pytest.mark.rllib
def test_a_reward_that_cannot_be_used_ends_a_run_with_the_users_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        folder,
        "reward = '1.0'\n"
        "def step(self, action):\n"
        "    return 'on', eval(Mine.reward), True, False, {'success': True}\n"
        "def demonstrate(self, observation, random): return 'go on'",
    )
    few = ["--set", "tasks_per_iteration=4", "group_size=4", "minibatches=1", "demonstrations=32", "env.train_tasks=4"]
    assert main(["sft", "--env", "gymnasium:mine:Mine", "--output", "m", *few[:1], "iterations=1", *few[3:5]]) == 0
    flags = ["--algo", "grpo", "--env", "gymnasium:mine:Mine", *few[:4], "eval_episodes=0", "model=m", "--local"]
    for reward, raises in (("float('nan')", False), ("1 / 0", True)):
        sys.modules["mine"].Mine.reward = reward
        capsys.readouterr()
        assert main([*flags, "--iterations", "3", "--output", f"run-{raises}"]) == 1
        output = capsys.readouterr()
        said, log = output.out + output.err, (folder / f"run-{raises}/error.log").read_text()
        assert said.count("16 of 16 episodes failed") == 1 and re.search(r"\(mine\.py:1[23]\)", said)
        assert "Resume" not in said and "mine.py" in log
        assert ("return 'on', eval(Mine.reward)" in log) is raises


@pytest.mark.parametrize("nothing", ["None", "b'door'"])
def test_observations_without_text_are_refused(folder: Path, nothing: str) -> None:
    write(folder, f"def reset(self, *, seed=None, options=None): return {nothing}, {{}}")
    with pytest.raises(InputError, match=rf"reset\(\) returned {re.escape(nothing)} as observation"):
        make_env("gymnasium:mine:Mine", {}).reset(seed=0)
    write(folder, f"def step(self, action): return {nothing}, 0.0, True, False, {{}}", "later")
    env = make_env("gymnasium:later:Mine", {})
    env.reset(seed=0)
    with pytest.raises(EnvFailure, match=r"observation is .*not a str"):
        read_step(env.step("x"))


def test_a_line_and_exit_code_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "")
    with (folder / "mine.py").open("a") as file:
        file.write("gymnasium.register('Lost-v0', entry_point='mine:Lost')\n")
    (folder / "typo.py").write_text("import gymnasium\nMine = Gym\n")
    write(folder, "@staticmethod\ndef task_ids(split): return {}[split]", "tasks")
    write(folder, "def __init__(self): raise ValueError('no data')", "raising")
    write(folder, "max_turns = -3", "endless")
    write(folder, "", "random")
    before = {path.name for path in folder.iterdir()}
    for name, problem in (
        ("gymnasium:mine:Mien", "registers no environment 'Mien' and has no class of that name; it has: Lost-v0, Mine"),
        ("gymnasium:mine:Lost-v0", "its entry point mine:Lost cannot be loaded"),
        ("gymnasium:typo:Mine", "module typo cannot be imported: NameError: name 'Gym' is not defined (typo.py:2)"),
        ("gymnasium:tasks:Mine", "task_ids('train') failed: KeyError: 'train' (tasks.py:12)"),
        ("gymnasium:raising:Mine", "cannot be created: ValueError: no data (raising.py:11)"),
        ("gymnasium:endless:Mine", "Mine.max_turns=-3: must be at least 0"),
        ("gymnasium:random.py:Mine", f"the module name random is taken by {random.__file__}: rename random.py"),
        (
            "gymnasium:mien:Mine",
            f"no module mien in {folder} or among the installed ones; did you mean 'mine.py'? Else run",
        ),
        ("mine:Mine", "unknown environment 'mine:Mine': did you mean 'gymnasium:mine:Mine'?"),
    ):
        assert main(["--local", "--env", name, "--set", "model=m"]) == 2
        error = capsys.readouterr().err
        assert problem in error and error.count("\n") == 1
    assert {path.name for path in folder.iterdir()} - before <= {"__pycache__"}
    gymnasium.registry.pop("Lost-v0", None)


def test_what_a_cluster_is_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rl_agents.trainer.ray_init import JOB_CONFIG, shipped_modules

    assert shipped_modules() == {}
    env_spec("gymnasium:Taxi-v3")
    assert shipped_modules() == {}, "installed ones are everywhere"
    env_spec(LOCK)
    (folder / "own_games").mkdir()
    (folder / "own_games" / "__init__.py").write_text("")
    (folder / "lock.py").rename(folder / "own_games" / "deep.py")
    env_spec("gymnasium:own_games.deep:Lock")
    shipped = {"runtime_env": {"py_modules": [str(folder / "lock.py"), str(folder / "own_games")]}}
    assert shipped_modules() == shipped
    monkeypatch.setenv(JOB_CONFIG, json.dumps({"runtime_env": {"env_vars": {"A": "1"}}}))
    assert shipped_modules() == shipped
    monkeypatch.setenv(JOB_CONFIG, json.dumps({"runtime_env": {"working_dir": "gcs://x.zip"}}))
    assert shipped_modules() == {}, "the job brought its folder"
    package = folder / "own_words"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "more.py").write_text("import gen_more\n")
    with pytest.raises(InputError, match=r"needs gen_more, which is not installed; a \.gitignore may exclude it"):
        env_spec("gymnasium:own_words.more:Lock")


def test_the_current_folder_is_searched_from_a_shell_within_seconds(folder: Path) -> None:
    command = [sys.executable, str(ROOT / "run.py"), "--env", "gymnasium:lock:Key"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "it has: Lock" in done.stderr, done.stderr
