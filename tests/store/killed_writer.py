"""A writer that is killed: ``python killed_writer.py POOL ACKNOWLEDGED FIRST LAST``.

Adds episodes FIRST to LAST, step by step as a gateway would, and appends the number of each whose future is done to a
file; a kill loses nothing of what was appended there, since the kernel has it.
"""

import os
import sys
import threading
from concurrent.futures import Future

from store.experience import dialogue

from rl_agents.store.records import session_records
from rl_agents.store.trajectory_store import PoolWriter


def main(pool_file: str, acknowledged: str, first: int, last: int) -> None:
    """Write, with at most 50 episodes under way."""
    log = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    room = threading.Semaphore(50)

    def told(number: int, future: Future[None]) -> None:
        future.result()
        os.write(log, f"{number}\n".encode())
        room.release()

    with PoolWriter(pool_file, commit_s=0.002) as pool:
        for number in range(first, last):
            room.acquire()
            *steps, session = session_records(dialogue(number), str(number))
            for at in range(0, len(steps), 2):
                pool.add(*steps[at : at + 2])
            pool.add(session).add_done_callback(lambda future, number=number: told(number, future))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
