"""The commands of the command line; each is imported only when it is called."""

from __future__ import annotations

#: Command -> (module with ``run(argv) -> exit code``, what it does).
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("rl_agents.cli.train", "train an agent (the default command)"),
    "eval": ("rl_agents.cli.evaluate", "evaluate checkpoints or models: mean and 95 % interval as JSON"),
    "pivot": ("rl_agents.cli.pivot", "prepare expert traces for PivotRL: extract turns, profile them, keep the pivots"),
    "tune": ("rl_agents.cli.tune", "run a sweep with Ray Tune: table, best preset, plot"),
    "serve": ("rl_agents.cli.serve", "host a trained agent: OpenAI's and Anthropic's APIs, agent sessions, a web page"),
    "push": ("rl_agents.cli.push", "publish a checkpoint with a model card, on the Hugging Face Hub or as a folder"),
    "gateway": ("rl_agents.cli.gateway", "serve a model to agents of any framework; every call is kept as a step"),
    "sft": ("rl_agents.cli.sft", "build an environment's starter model by imitation"),
    "model": ("rl_agents.cli.model", "write a GGUF file's model as a Hugging Face folder to train, and check it"),
    "play": ("rl_agents.cli.play", "show an environment: a random, scripted or human player, its rewards"),
    "view": (
        "rl_agents.cli.view",
        "look at runs: curves, episodes, tokens, trees, why a step got its advantage",
    ),
    "pool": ("rl_agents.cli.pool", "list, read, curate and export what a run sampled"),
    "replay": ("rl_agents.cli.replay", "repeat a run's learning from its pool, and compare it with the record"),
    "new": ("rl_agents.cli.new", "write a plugin to begin with, and its test: an algorithm, environment, judge ..."),
    "list": (
        "rl_agents.cli.listing",
        "list algorithms, environments, engines, recipes, sweeps, keys, or the keys' schema",
    ),
    "completion": ("rl_agents.cli.completion", "print the script with which bash or zsh completes all of this"),
    "doctor": ("rl_agents.cli.doctor", "report what is installed, what will run, and how to fix the rest"),
}
