"""Where an episode's commands run: in a container, or over a copy of the task's files, with or without bubblewrap.

Each command runs below a supervisor, which kills it and all that it has started when its time is over. At the end of
the episode, or if this process dies, the input of a waiting shell closes, which removes the container and the files.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.background import SharedAnswers
from rl_agents.envs.harbor import PAGE, HarborOptions
from rl_agents.envs.harbor.tasks import CONTAINERS, Task
from rl_agents.errors import InputError
from rl_agents.gateway.process_supervisor import one_line, supervised
from rl_agents.queues import CallQueue, queued

#: Bytes of output that end a command, and seconds for a container engine's own work.
MAX_BYTES, ENGINE_S = 1 << 20, 60.0
#: The variables of commands, except the task's own.
VARIABLES = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
BUBBLEWRAP = (
    "bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--uid", "0", "--gid", "0",
    "--cap-drop", "ALL", "--die-with-parent", "--new-session",
)  # fmt: skip
#: What commands in bubblewrap can read of this machine.
SHARED = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64",
    "/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl/certs", "/etc/resolv.conf", "/etc/nsswitch.conf",
)  # fmt: skip
#: Killed processes may still write for a moment.
REMOVE = 'for try in 1 2 3 4 5 6 7 8 9; do chmod -R u+rwX "$1"; rm -rf "$1" && exit; sleep 0.2; done'
#: Prints the name of the reward file and its text, or else an empty line and the end of what the tests said.
VERIFY = """rm -f /logs/verifier/reward.json /logs/verifier/reward.txt; chmod +x /tests/test.sh
(/tests/test.sh) >/logs/verifier/test-stdout.txt 2>&1
cd /logs/verifier; for name in reward.json reward.txt; do [ -e $name ] && echo $name && exec head -c 65536 $name; done
echo; exec tail -n 3 test-stdout.txt"""
#: (exit code, or None if a limit ended the command; output)
Ended = tuple[int | None, str]
_images: SharedAnswers[str] = SharedAnswers(4096)


@lru_cache
def sandbox_kind(wanted: str) -> str:
    """Return the kind of sandbox for ``env.sandbox``; raises `InputError`: it does not work here."""
    problems = []
    for kind in (*CONTAINERS, "bubblewrap") if wanted == "auto" else (wanted,):
        probe = (kind, "ps") if kind in CONTAINERS else (*BUBBLEWRAP, "--ro-bind", "/", "/", "true")
        try:
            subprocess.run("true" if kind == "none" else probe, capture_output=True, check=True, timeout=ENGINE_S)
            return kind
        except (OSError, subprocess.SubprocessError) as error:
            said = (getattr(error, "stderr", b"") or b"").decode(errors="replace")
            problems.append(f"{kind}: {one_line(said or str(error))}")
    hint = f"install bubblewrap or podman, or set env.sandbox=none for tasks that you trust ({PAGE})"
    raise InputError(f"environment harbor: no isolation for a model's commands ({'; '.join(problems)}): {hint}")


async def execute(argv: Sequence[str], limit_s: float, variables: Mapping[str, str]) -> Ended:
    """Run a program, which has a limit of its own: that of the environment's call does not count."""
    said, code = bytearray(), None
    with queued(CallQueue(argv[0]), limit_s + ENGINE_S):
        # A supervisor would also end podman's own processes, which outlive a command.
        pipes: dict[str, Any] = {"stdin": -1, "stdout": -1, "stderr": asyncio.subprocess.STDOUT, "env": variables}
        engine = argv[0] in CONTAINERS
        process = await (asyncio.create_subprocess_exec(*argv, **pipes) if engine else supervised(argv, 0.0, **pipes))
        assert process.stdin is not None and process.stdout is not None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    while len(said) < MAX_BYTES and (piece := await process.stdout.read(1 << 16)):
                        said += piece
                    code = await process.wait() if len(said) < MAX_BYTES else None
        finally:
            process.stdin.close()  # the supervisor kills what is left
            if engine and process.returncode is None:
                process.kill()
        while await process.stdout.read(1 << 16):
            pass
        await process.wait()
    return code, said.decode(errors="replace")


class Sandbox:
    """The sandbox of one episode, with a fresh copy of the task's files.

    The verifier has a /tests and a /logs/verifier of its own, which the agent's commands cannot reach.
    """

    def __init__(self, task: Task, kind: str, options: HarborOptions) -> None:
        self.task, self.kind, self.options, self.workdir = task, kind, options, task.workdir
        self.folder = Path(tempfile.mkdtemp(prefix="rl-agents-harbor-")).resolve()
        self.name, self.root, self.memory_mb = (
            self.folder.name,
            self.folder / "root",
            task.memory_mb or options.memory_mb,
        )
        engine = f"{kind} kill $2 || {kind} rm -f $2; " if kind in CONTAINERS else ""
        words = ["sh", "-c", f"(cat; {engine}{REMOVE}) >/dev/null 2>&1", "sh", str(self.folder), self.name]
        self._keeper = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)

    async def open(self) -> None:
        """Start the container, or copy the files; raises `RuntimeError`: the container engine fails."""
        await (self._start() if self.kind in CONTAINERS else asyncio.to_thread(self._copy))

    def close(self) -> None:
        """Kill what still runs, and remove the container or the files."""
        self._keeper.communicate()

    async def run(self, script: str, limit_s: float, phase: str = "agent") -> Ended:
        """Run a script of bash for the ``agent`` or the ``verifier``."""
        given = self.task.variables | (self.task.verifier_variables if phase == "verifier" else {})
        if self.kind in CONTAINERS:
            options = [f"--workdir={self.workdir}"] * bool(self.workdir) + [f"--env={k}={v}" for k, v in given.items()]
            inner = [self.name, "timeout", "-s", "KILL", f"{limit_s:.1f}", "bash", "-c", script]
            code, said = await execute([self.kind, "exec", *options, *inner], limit_s + ENGINE_S, os.environ)
            return None if code == 137 else code, said
        limited = f'cd "$1"; ulimit -c 0 -d {self.memory_mb << 10}; exec bash -c "$0"'
        words = ["bash", "-c", limited, script, self.workdir]
        if self.kind == "none":
            words[3:] = self._local(script, phase), f"{self.root}{self.workdir}"
        code, said = await execute([*self._bubblewrap(phase), *words], limit_s, VARIABLES | given)
        return code, said.replace(str(self.root), "")

    async def verify(self) -> Ended:
        """Run the tests; see `VERIFY`."""
        if self.kind in CONTAINERS:
            clean = "rm -rf /tests /logs/verifier; mkdir -p /tests /logs/verifier; chmod 777 /logs/verifier"
            await self._engine("exec", "--user=0", self.name, "bash", "-c", clean)
            await self._engine("cp", f"{self.task.folder}/tests/.", f"{self.name}:/tests")
        return await self.run(VERIFY, self.task.verifier_s, "verifier")

    async def _start(self) -> None:
        task, home, image = self.task, self.task.folder / "environment", self.task.image
        if not image:
            image = f"rl-agents-harbor:{hashlib.sha256(str(home).encode()).hexdigest()[:16]}"
            build = ("build", "-q", "-t", image, str(home))
            await _images.get((self.kind, image), lambda: self._engine(*build, limit_s=task.build_s))
        limits = [f"--memory={self.memory_mb}m", "--pids-limit=512", *[f"--cpus={task.cpus}"] * bool(task.cpus)]
        limits += ["--security-opt=no-new-privileges", *["--network=none"] * (not self.options.network)]
        words = ("-d", "--rm", f"--name={self.name}", *limits, image, "sleep", "86400")
        await self._engine("run", *words, limit_s=task.build_s)
        if not task.dockerfile:  # nothing has copied the files
            self.workdir = self.workdir or (await self._engine("exec", self.name, "pwd")).strip()
            await self._engine("cp", f"{home}/.", f"{self.name}:{self.workdir}")

    async def _engine(self, *words: str, limit_s: float = ENGINE_S) -> str:
        code, said = await execute([self.kind, *words], limit_s, os.environ)
        if code != 0:
            raise RuntimeError(f"harbor task {self.task.folder.name}: {self.kind} {words[0]}: {one_line(said)}")
        return said

    def _copy(self) -> None:
        for name in ("root/root", "root/tmp", "agent/tests", "agent/logs", "verifier/logs"):
            (self.folder / name).mkdir(parents=True)
        self.workdir = self.task.place(self.root)
        shutil.copytree(self.task.folder / "tests", self.folder / "verifier" / "tests")
        for path in (self.folder / "verifier").rglob("*") if self.kind == "none" else ():
            if path.is_file():
                path.write_text(self._local(path.read_text("latin-1"), "verifier"), "latin-1")

    def _local(self, text: str, phase: str) -> str:
        """Return a text with this machine's paths of /tests, /logs and the working directory's top folder."""
        places = {"tests": self.folder / phase / "tests", "logs/verifier": self.folder / phase / "logs"}
        tops = f"tests|logs/verifier|app|logs|{self.workdir.split('/')[1] or 'app'}"
        return re.sub(rf"(?<![\w.])/({tops})\b", lambda at: str(places.get(at[1], self.root / at[1])), text)

    def _bubblewrap(self, phase: str) -> list[str]:
        """Return the beginning of a command; empty without isolation."""
        own, shared = self.folder / phase, (word for name in SHARED for word in ("--ro-bind-try", name, name))
        words = [
            *BUBBLEWRAP, *["--unshare-net"] * (not self.options.network), "--bind", str(self.root), "/",
            "--tmpfs", "/etc", *shared, "--remount-ro", "/etc", "--proc", "/proc", "--dev", "/dev",
            "--bind", str(own / "tests"), "/tests", "--bind", str(own / "logs"), "/logs/verifier",
        ]  # fmt: skip
        return words if self.kind == "bubblewrap" else []
