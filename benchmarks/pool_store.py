"""What a pool costs: ``python -m benchmarks.pool_store``.

Calls are written as a gateway or the training loop would: episodes of ten turns, an answer of 100 tokens and 60 of
observation each, ids as of a vocabulary of 150,000, with the observation's and the answer's text (four characters per
token). Several clients at once add one call and its outcome, wait until it is on disk, and go on; so the number of
clients is the size of the groups that are committed together. ``alone`` is one client; ``unwaited`` adds whole episodes
without waiting, as the training loop does.

CPU time is the process's, clients included; the file lies in a temporary folder of ``--folder``.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.report import median_table, write_result
from benchmarks.timing import peak_mib, spent
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.store.export import export
from rl_agents.store.reader import PoolReader, Where, statistics
from rl_agents.store.records import Outcome, Record, session_records
from rl_agents.store.trajectory_store import PoolWriter

TURNS, PROMPT, ANSWER, OBSERVATION, VOCABULARY = 10, 200, 100, 60, 150_000
CLIENTS = (1, 4, 16, 64, 256)
TEN_MILLION = 10_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000, help="of the run without waiting; others have fewer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None, help="where the pool lies (default: the system's)")
    args = parser.parse_args()
    rounds = [measured(args.calls, args.folder, number) for number in range(args.rounds)]
    print(median_table(rounds))
    write_result("pool_store", "python -m benchmarks.pool_store", rounds)


def measured(calls: int, folder: str | None, number: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for clients in CLIENTS:
            few = min(calls, 300 if clients == 1 else 60 * clients) // TURNS
            name = "alone" if clients == 1 else f"{clients} clients"
            figures |= written(Path(place) / f"{clients}.sqlite", few, clients, number, name)
        path = Path(place) / "unwaited.sqlite"
        figures |= written(path, calls // TURNS, 0, number, "unwaited")
        figures |= read(path)
    return figures


def written(path: Path, episodes: int, clients: int, number: int, name: str) -> dict[str, float]:
    """Write episodes and return calls a second, CPU per call, and how long a call waits."""
    waits: list[float] = []
    made = [episode(number * 1_000_000 + index) for index in range(episodes)]
    jobs = [session_records(each, str(index)) for index, each in enumerate(made)]
    with PoolWriter(path) as pool:

        def work() -> None:
            if clients:
                with ThreadPoolExecutor(clients) as threads:
                    list(threads.map(lambda client: play(pool, jobs[client::clients], waits), range(clients)))
                return
            for job in jobs:
                pool.add(*job)
            pool.flush()

        wall, cpu = spent(work)
    calls = episodes * TURNS
    figures = {f"{name}: calls/s": calls / wall, f"{name}: CPU us per call": 1e6 * cpu / calls}
    if waits:
        waits.sort()
        figures[f"{name}: wait ms, median"] = 1e3 * waits[len(waits) // 2]
        figures[f"{name}: wait ms, 99 %"] = 1e3 * waits[len(waits) * 99 // 100]
    return figures


def play(pool: PoolWriter, jobs: list[list[Record]], waits: list[float]) -> None:
    """Add each call with its outcome, and wait until it is on disk."""
    for job in jobs:
        batch: list[Record] = []
        for record in job:
            batch.append(record)
            if isinstance(record, Outcome):
                waits.append(spent(pool.add(*batch).result)[0])
                batch = []
        pool.add(*batch).result()


def read(path: Path) -> dict[str, float]:
    """Return sizes, and what reading and exporting cost."""
    figures: dict[str, float] = {}
    with PoolReader(path) as reader:
        facts = statistics(reader)
        calls, size = facts["calls"], facts["bytes"]
        figures["bytes per call"] = facts["bytes_per_call"]
        figures["MB per million tokens"] = facts["bytes_per_million_tokens"] / 1e6
        figures["MB per million sampled tokens"] = size / facts["tokens_sampled"]
        parquet = path.with_suffix(".parquet")
        works: dict[str, tuple[int, Callable[[], object]]] = {
            "read: CPU us per call": (calls, lambda: sum(len(t.steps) for t in reader.trajectories())),
            "list: CPU us per session": (calls // TURNS, lambda: sum(1 for _ in reader.stored())),
            "export to parquet: CPU us per call": (calls, lambda: export(reader, parquet, Where())),
        }
        for name, (count, work) in works.items():
            figures[name] = 1e6 * spent(work)[1] / count
        figures["parquet: bytes per call"] = parquet.stat().st_size / calls
    figures["10 million calls: GB"] = TEN_MILLION * size / calls / 1e9
    figures["10 million calls: hours to read"] = TEN_MILLION * figures["read: CPU us per call"] / 3.6e9
    figures["peak memory MB"] = peak_mib() * 1.024
    return figures


def episode(seed: int) -> Trajectory:
    rng = random.Random(seed)
    history = [rng.randrange(VOCABULARY) for _ in range(PROMPT)]
    steps = []
    for _ in range(TURNS):
        answer = [rng.randrange(VOCABULARY) for _ in range(ANSWER)]
        logprobs = array("f", [-rng.random() for _ in answer]).tolist()
        sees = rng.randbytes(2 * OBSERVATION).hex()
        steps.append(
            Step(list(history), answer, logprobs, 0, "stop", sees, sees, rng.randbytes(2 * ANSWER).hex(),
                 call=rng.getrandbits(62) + 1)
        )  # fmt: skip
        history += [*answer, *(rng.randrange(VOCABULARY) for _ in range(OBSERVATION))]
    return Trajectory(f"task-{seed}", 0, 0, seed, steps, terminated=True, end_cause="terminated")


if __name__ == "__main__":
    main()
