"""A process that plays ALFWorld games on the real TextWorld engine. Run by `backends`, never imported.

It runs by path under an interpreter that has textworld and alfworld (MIT, but they bring GPL-2 and GPL-3 packages),
shares no code with the rest of the project, and speaks JSON lines over an inherited socket:

- ``{"op": "fork"}`` with a socket attached: a copy of this process, game and all, serves that socket from now on.
- ``{"op": "load", "game": {...}}``: load and reset a game; answers an observation.
- ``{"op": "step", "command": "..."}``: answers an observation: ``text``, ``admissible``, ``won``.

Every answer is one line; ``{"error": "..."}`` when the request failed. A process ends when its socket is closed. The
process stays single-threaded, so that a fork is a complete copy: it costs milliseconds where a reset costs a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import sys
from typing import Any

MAX_REQUEST = 32_000_000
MAX_ERROR = 500
#: The engine *evaluates* the expressions of a game's grammar. Only names joined with `+` or `or` are let through.
_TERM = r"(?:[A-Za-z_]\w*(?:\.(?:name|id|indefinite|definite))?|'[^'\\]*')"
_EXPRESSION = re.compile(rf"\s*{_TERM}(?:\s*(?:\+|\bor\b)\s*{_TERM})*\s*")
_PR_SET_CHILD_SUBREAPER = 36


class Connection:
    """Lines and attached sockets of one client."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = b""
        self._attached: list[int] = []

    def read(self) -> dict[str, Any] | None:
        """Return the next request; None when the client is gone."""
        while b"\n" not in self._buffer:
            data, descriptors, _, _ = socket.recv_fds(self.sock, 1 << 16, 1)
            self._attached += descriptors
            self._buffer += data
            if not data or len(self._buffer) > MAX_REQUEST:
                return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        request: dict[str, Any] = json.loads(line)
        return request

    def write(self, answer: dict[str, Any]) -> None:
        self.sock.sendall(json.dumps(answer).encode() + b"\n")

    def attached(self) -> socket.socket:
        return socket.socket(fileno=self._attached.pop())


class Player:
    def __init__(self, game: dict[str, Any]) -> None:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs import PddlEnv

        self._env = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)), shuffle=False)
        self._env.load(game)
        check_grammar(self._env.unwrapped._logic)
        self.state = self._env.reset()

    def step(self, command: str) -> None:
        self.state, _, _ = self._env.step(command)

    def observation(self) -> dict[str, Any]:
        state = self.state
        return {
            "text": state["feedback"],
            "admissible": list(state["admissible_commands"]),
            "won": bool(state["won"]),
        }


def check_grammar(logic: Any) -> None:
    """Refuse a grammar with expressions that do more than name things."""
    from textworld.envs.pddl.textgen import EvalSymbol, Symbol, _parse_and_convert

    symbols = [symbol for rules in logic.grammar._rules.values() for rule in rules for symbol in rule.rhs]
    for action in logic.actions.values():
        for text in (action.template, action.feedback_rule):
            symbols += _parse_and_convert(text, rule_name="symbols")
    while symbols:
        symbol = symbols.pop()
        if isinstance(symbol, EvalSymbol) and not _EXPRESSION.fullmatch(symbol.expression):
            raise ValueError(f"the grammar has an expression that is not allowed: {symbol.expression[:100]}")
        below = (getattr(symbol, "symbol", None), getattr(symbol, "expression", None))
        symbols += [inner for inner in below if isinstance(inner, Symbol)]


def serve(connection: Connection) -> None:
    """Answer requests until the client is gone. A fork goes on in here with its own connection."""
    player: Player | None = None
    while (request := connection.read()) is not None:
        try:
            if request["op"] == "fork":
                theirs = connection.attached()
                if child := os.fork():
                    theirs.close()
                    connection.write({"pid": child})
                else:
                    connection.sock.close()
                    connection = Connection(theirs)
                continue
            if request["op"] == "load":
                player = Player(request["game"])
            elif player is not None:
                player.step(request["command"])
            else:
                raise RuntimeError("no game is loaded")
            answer = player.observation()
        except (Exception, SystemExit) as error:  # the planner's translator exits on bad input
            answer = {"error": f"{type(error).__name__}: {error}".replace("\n", " ")[:MAX_ERROR]}
        connection.write(answer)


def main() -> None:
    """Serve the socket whose descriptor is the first argument."""
    connection = Connection(socket.socket(fileno=int(sys.argv[1])))
    if sys.version_info >= (3, 13):  # its texts are derived with locals().update(), which does nothing there
        connection.write({"error": "it needs Python 3.12 or earlier"})
        return
    try:
        import alfworld.agents.environment.alfred_tw_env  # noqa: F401
        import textworld.envs  # noqa: F401
    except ImportError as error:
        connection.write({"error": f"{type(error).__name__}: {error}"})
        return
    # Ended copies leave no zombies: nobody waits for them, and those whose parent ended before become ours.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    connection.write({"pid": os.getpid()})
    root = os.getpid()
    with contextlib.suppress(OSError):  # the client may go while it is being answered
        serve(connection)
    if os.getpid() == root:
        end_copies()
    os._exit(0)


def end_copies() -> None:
    """End all other processes of the group, which has this one as its leader, and wait until they are gone."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(os.getpid(), signal.SIGTERM)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


if __name__ == "__main__":
    main()
