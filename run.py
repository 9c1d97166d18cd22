"""The command line: ``python run.py --algo grpo --env guess_numbers``; see ``python run.py --help``."""

import sys

from rl_agents.cli import main

if __name__ == "__main__":
    sys.exit(main())
