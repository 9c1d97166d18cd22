"""The commands of the command line; each is imported only when it is called."""

from __future__ import annotations

#: Command -> (module with ``run(argv) -> exit code``, what it does).
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("rl_agents.cli.train", "train an agent (the default command)"),
    "eval": ("rl_agents.cli.evaluate", "measure a checkpoint or a model: mean and 95 % interval as JSON"),
    "pivot": ("rl_agents.cli.pivot", "PivotRL: turns of expert traces, their profiles, the pivots to train on"),
    "tune": ("rl_agents.cli.tune", "run a sweep of recipes with Ray Tune: table, best recipe, plot"),
    "serve": ("rl_agents.cli.serve", "host a trained agent: OpenAI's chat API, sessions, a page to play along"),
    "sft": ("rl_agents.cli.sft", "build an environment's starter model"),
    "list": ("rl_agents.cli.listing", "algorithms, environments, engines, truncation rules, settings keys"),
    "doctor": ("rl_agents.cli.doctor", "what is installed, what will run, and how to fix the rest"),
}
