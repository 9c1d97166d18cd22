"""Write the fixtures of the dialects' tests: what every client really sends, asked by `two_turns`.

    PYTHONPATH=.:tests/gateway/dialects:tests/gateway/clients PYTHON tests/gateway/clients/record.py [CLIENT ...]

PYTHON is one with ``requirements.txt`` installed. The answers come from `scripted_gateway`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from scripted_gateway import Script, answered, scripted
from two_turns import CLIENTS

FIXTURES = Path(__file__).parents[1] / "dialects" / "fixtures"
THOUGHTS = "Two and three are small."
END = "</code>"  # smolagents' code agent asks to stop here, and writes it back behind what it got
STEP = answered("Thought: I add first.\n<code>\nprint(add(2, 3))\n", stop=END)
CODE = answered("Thought: I add.\n<code>\nfinal_answer(add(2, 3))\n", stop=END)
LAST = "The sum is 5."


def script_of(client: str) -> Script:
    """Return what is answered to a client: a call, then the last words in the client's own form."""
    called = answered("Let me add.", ("add", {"a": 2, "b": 3}), thoughts=THOUGHTS)
    if client == "smolagents_code":
        return Script([STEP, CODE])
    if client.startswith("smolagents"):
        return Script([called, answered("", ("final_answer", {"answer": LAST}))])
    return Script([called, answered(LAST, thoughts="Done.")])


def record(client: str) -> str:
    """Play one client and keep its requests; returns its last words."""
    script = script_of(client)
    with scripted(script) as base:
        said = CLIENTS[client](base, "no-secret")
    sent = [{"path": path, "body": body} for path, body in script.seen]
    text = json.dumps(sent, indent=1, ensure_ascii=False).replace(base, "http://127.0.0.1")
    (FIXTURES / f"{client}.json").write_text(text + "\n", encoding="utf-8")
    return said


def main(names: list[str]) -> int:
    failed = 0
    for client in names or CLIENTS:
        began = time.monotonic()
        try:
            said = record(client)
        except Exception as error:  # the next client is played all the same
            said, failed = f"{type(error).__name__}: {error}"[:500], failed + 1
        print(f"{client:32} {time.monotonic() - began:5.1f} s  {said}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
