"""Completions in a real bash."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from rl_agents.cli import main
from rl_agents.cli.parser import COMMANDS

ASK = """source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
_shtab_rl_agents; printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "rl-agents"
    with path.open("w", encoding="utf-8") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", file)
        assert main(["completion", "bash"]) == 0
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    "words, wanted",
    [
        ("tu", {"tune"}),
        ("--algo chain", {"chain-gae"}),
        ("tune vspo", {"vspo_paper", "vspo_small"}),
        ("--set group", {"group_size=", "group_statistics="}),
    ],
)
def test_bash_completes(script: Path, words: str, wanted: set[str]) -> None:
    asked = ["bash", "-c", ASK, "bash", str(script), "rl-agents", *words.split(" ")]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == wanted, done.stderr


def test_every_command_and_zsh(capsys: pytest.CaptureFixture[str], script: Path) -> None:
    (commands,) = re.findall(r"^_shtab_rl_agents_subparsers=\((.*)\)", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(shlex.split(commands)) == set(COMMANDS)
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("#compdef rl-agents")
    assert main(["completion", "cmd"]) == 2
