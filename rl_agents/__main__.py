"""``python -m rl_agents``: the same as ``python run.py`` and the console script ``rl-agents``."""

import sys

from rl_agents.cli import main

if __name__ == "__main__":
    sys.exit(main())
