"""Runs commands and the verifier of task folders with harbor 0.26 itself, without docker: in bubblewrap.

python harbor_runner.py '[["FOLDER", ["COMMAND", ...]], ...]'  # prints [[instruction, [[code, stdout]], rewards], ...]
"""

import asyncio
import json
import shutil
import sys
import tempfile
import uuid
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.factory import EnvironmentFactory
from harbor.models.task.task import Task
from harbor.models.trial.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths
from harbor.verifier.verifier import Verifier

SYSTEM = [word for name in ("/usr", "/bin", "/lib", "/lib64") for word in ("--ro-bind", name, name)]


class Host(BaseEnvironment):
    """The folder `environment`, at /app, in place of an image."""

    @staticmethod
    def type() -> str:
        return "host"

    def _validate_definition(self) -> None:
        pass

    def at(self, path: object) -> Path:
        return self.root / str(path).lstrip("/")

    async def start(self, force_build: bool) -> None:
        self.root = Path(self.trial_paths.trial_dir).resolve() / "root"
        for name in ("logs/verifier", "tests", "tmp"):
            self.at(name).mkdir(parents=True)
        shutil.copytree(self.environment_dir, self.at("app"))

    async def stop(self, delete: bool) -> None:
        shutil.rmtree(self.root)

    async def upload_file(self, source_path, target_path) -> None:
        shutil.copy(source_path, self.at(target_path))

    async def upload_dir(self, source_dir, target_dir) -> None:
        shutil.copytree(source_dir, self.at(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path, target_path) -> None:
        shutil.copy(self.at(source_path), target_path)

    async def download_dir(self, source_dir, target_dir) -> None:
        shutil.copytree(self.at(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None):
        inside = ["bwrap", "--unshare-all", "--bind", str(self.root), "/", *SYSTEM, "--proc", "/proc", "--dev", "/dev"]
        words = [*inside, "--chdir", cwd or "/app", "bash", "-c", command]
        variables = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", **(env or {})}
        process = await asyncio.create_subprocess_exec(*words, stdout=-1, stderr=-1, env=variables)
        out, err = await process.communicate()
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode)


async def play(folder: str, commands: list[str], trial: str) -> list:
    task, paths = Task(task_dir=Path(folder)), TrialPaths(trial_dir=Path(trial))
    paths.mkdir()
    env = EnvironmentFactory.create_environment_from_config(
        config=EnvironmentConfig(import_path="harbor_runner:Host"), environment_dir=task.paths.environment_dir,
        environment_name=task.short_name, session_id=uuid.uuid4().hex, trial_paths=paths,
        task_env_config=task.config.environment,
    )  # fmt: skip
    await env.start(force_build=False)
    try:
        results = [await env.exec(command) for command in commands]
        rewards = (await Verifier(task=task, trial_paths=paths, environment=env).verify()).rewards
    except Exception as error:
        rewards = type(error).__name__
    finally:
        await env.stop(delete=True)
    return [task.instruction.strip(), [[r.return_code, r.stdout] for r in results], rewards]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    with tempfile.TemporaryDirectory() as home:
        cases = enumerate(json.loads(sys.argv[1]))
        print(json.dumps([asyncio.run(play(*case, f"{home}/{number}")) for number, case in cases]))
