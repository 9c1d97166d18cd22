"""A real vLLM server in its own process: a judge that always answers with one word."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

START_S = 240


@contextmanager
def vllm_judge(word: str, folder: Path) -> Iterator[str]:
    """Start it on a free port and yield its URL up to ``/v1``; its model is called ``judge``. 20 s when idle."""
    tests = Path(__file__).parent
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "PYTHONPATH": str(tests.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(tests / "vllm_server.py"), str(folder / "model"), word, str(port)]
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        _wait_for(port, process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(timeout=120)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"the server did not start: {log.read_text()[-3000:]}")
