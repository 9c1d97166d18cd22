"""A server in another program's event loop."""

import logging
from pathlib import Path

from rl_agents.web.listening import listening


async def test_it_leaves_the_programs_log_open(tmp_path: Path) -> None:
    """uvicorn's own configuration closes all handlers, after which a file that was opened to write stays as it is."""
    log = logging.getLogger("of the program")
    handler = logging.FileHandler(tmp_path / "log", "w")
    log.addHandler(handler)
    async with listening(None, "127.0.0.1", 0, "nothing"):
        log.warning("still here")
    handler.close()
    assert (tmp_path / "log").read_text() == "still here\n"
