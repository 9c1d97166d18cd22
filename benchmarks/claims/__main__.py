"""The papers' claims: ``python -m benchmarks.claims`` writes docs/research/claims.md from the results on file.

    python -m benchmarks.claims 4 --until 10 --jobs 2     # more seeds of claim 4 first, until it is decided

Seeds are added to the files in benchmarks/results; finished runs are not repeated.
"""

from __future__ import annotations

from argparse import Namespace

from benchmarks.claims import page
from benchmarks.claims.judge import CONTRADICTED, HOLDS, LOOKS
from benchmarks.claims.registry import CLAIMS, Claim
from benchmarks.grid import Arm, run_grid
from benchmarks.report import command_line


def main() -> None:
    parser = command_line(__doc__, {"jobs": 1})
    numbers = [claim.number for claim in CLAIMS]
    parser.add_argument("claims", nargs="*", type=int, help="claims to run more seeds of; none: only write the page")
    parser.add_argument("--until", type=int, default=10, choices=LOOKS, help="most seeds")
    args = parser.parse_args()
    for number in args.claims:
        if number not in numbers:
            parser.error(f"there is no claim {number}: {numbers[0]} to {numbers[-1]}")
        run(CLAIMS[number - 1], args.until, args.jobs)
    for number, said in page.write().items():
        print(f"{number:3}  {said}")


def run(claim: Claim, until: int, jobs: int) -> None:
    """Add seeds, in steps of `LOOKS`, until every comparison is decided."""
    if claim.own_command:
        raise SystemExit(f"claim {claim.number}: {claim.own_command}")
    for seeds in (look for look in LOOKS if look <= until):
        open_ones = [c for c in claim.comparisons if page.judge(c).finding.verdict not in (HOLDS, CONTRADICTED)]
        for file in dict.fromkeys(comparison.file for comparison in open_ones):
            wanted = {arm for c in open_ones if c.file == file for arm in c.arms}
            stored = page.results(file)
            arms = [Arm(name, tuple(stored[name]["flags"])) for name in stored if name in wanted]
            run_grid(arms, Namespace(name=file, seeds=seeds, first_seed=0, set=[], local=False, jobs=jobs))
        page.results.cache_clear()


if __name__ == "__main__":
    main()
