"""A program for `test_trackers`: logs a run and its resumption to the named trackers."""

import sys
from pathlib import Path

from rl_agents.reporting.trackers import Trackers

CONFIG = {"lr": 0.1, "pool": "postgresql://me:word@host/db", "api_key": "hidden", "note": None}


def main(folder: Path, names: list[str]) -> None:
    for iterations, status, more in ((range(3), "interrupted", {}), (range(2, 5), "done", {"lr": 0.2, "top_p": 0.9})):
        trackers = Trackers(folder, names, "project", CONFIG | more, print)
        for i in iterations:
            if i % 2 == 0:
                trackers.episodes(i, [{"iteration": i, "return": 0.5, "episode": f"# {kind}: <b>"} for kind in "ab"])
            rate, number = (None, None) if i % 2 else (i / 10, 8.0)
            evaluated = {"eval/success_rate": rate, "eval/episodes": number, "rollout/@odd": 1.0}
            trackers.write({"iteration": i, "seconds": 3.0, "actor/loss": i * 0.5, **evaluated})
        trackers.close(status)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(","))
