"""Claude Code or Codex as released plays a task in a repository of its own; a command that checks the files rewards it.

    python docs/examples/agents/coding_command.py claude|codex

The command and its configuration come from the PATH and a folder that is made for the episode; nothing else is read.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROVIDER = "model_providers.policy"
task = json.loads(os.environ["RL_AGENTS_TASK"])
with tempfile.TemporaryDirectory() as home:
    repository = Path(home, "repository")
    for name, text in task["files"].items():
        Path(repository, name).parent.mkdir(parents=True, exist_ok=True)
        Path(repository, name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=repository, check=True)
    Path(home, "codex").mkdir()
    provider = {"name": '"policy"', "base_url": json.dumps(os.environ["OPENAI_BASE_URL"]), "wire_api": '"responses"',
                "env_key": '"OPENAI_API_KEY"'}  # fmt: skip
    options = [f"{PROVIDER}.{name}={value}" for name, value in provider.items()]
    commands = {
        "claude": ["claude", "--print", "--model", "policy", "--permission-mode", "acceptEdits",
                   "--allowedTools", "Bash,Read,Edit,Write,Agent", "--", task["prompt"]],
        "codex": ["codex", "exec", "--model", "policy", "--dangerously-bypass-approvals-and-sandbox",
                  *(part for option in ['model_provider="policy"', *options] for part in ("-c", option)),
                  task["prompt"]],
    }  # fmt: skip
    own = {"HOME": home, "CLAUDE_CONFIG_DIR": f"{home}/claude", "CODEX_HOME": f"{home}/codex",
           "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}  # fmt: skip
    done = subprocess.run(commands[sys.argv[1]], cwd=repository, env={**os.environ, **own}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)  # fmt: skip
    print((done.stdout + done.stderr)[-2000:], file=sys.stderr)
    solved = subprocess.run(task["check"], shell=True, cwd=repository).returncode == 0
print(json.dumps({"reward": float(solved), "success": solved}))
