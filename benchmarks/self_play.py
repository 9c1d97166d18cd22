"""Kuhn poker against oneself: ``python -m benchmarks.self_play``. Figures are exact, from the model's probabilities.

A policy's probability of a chip (bet or call) at each of the twelve information sets is that of the word after the
prompt; every other answer passes. *Exploitability* is the mean of what the best reply to it wins in either seat; it is
0 in an equilibrium, where the first player's value is -1/18 (Kuhn 1950). Finished runs are not repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import permutations, product
from pathlib import Path
from typing import Any

from benchmarks.grid import trained
from benchmarks.report import command_line, load, markdown, mean_text, part_of, write_figures
from docs.examples.games.kuhn_poker import CARDS, ENDS, MOVES, KuhnPoker, first_players_chips
from rl_agents.config import parse_assignments

ENV = "gymnasium:docs/examples/games/kuhn_poker.py:KuhnPoker"
HISTORIES = (("", "pb"), ("p", "b"))
Policy = Mapping[str, float]
UNIFORM: Policy = {f"{card} {history}": 0.5 for card in CARDS for seat in HISTORIES for history in seat}
OPPONENTS = ("self", "checkpoint")
KEYS = ("starter_iterations=6", "iterations=30", "tasks_per_iteration=12", "group_size=16", "entropy_coef=0.1",
        "checkpoint_interval=10", "keep_checkpoints=9", "eval_episodes=24", "eval_interval=0")  # fmt: skip
FIGURES = ("exploitability", "first against itself", "first against uniform", "second against uniform")


def value(policy: Policy, cards: str = "", history: str = "") -> float:
    """Return the first player's expected chips, over all deals if no cards are given."""
    if not cards:
        return sum(value(policy, first + second) for first, second in permutations(CARDS, 2)) / 6
    if history in ENDS:
        return float(first_players_chips(cards, history))
    chip = policy[f"{cards[len(history) % 2]} {history}"]
    return chip * value(policy, cards, history + "b") + (1 - chip) * value(policy, cards, history + "p")


def seat_of(policy: Policy, seat: int) -> Policy:
    return {name: chip for name, chip in policy.items() if name.partition(" ")[2] in HISTORIES[seat]}


def best_reply(policy: Policy, seat: int) -> float:
    """Return what the best strategy of ``seat`` wins against the policy in the other one."""
    names, sign = list(seat_of(policy, seat)), (1, -1)[seat]
    pure = (dict(zip(names, chips, strict=True)) for chips in product((0.0, 1.0), repeat=len(names)))
    return max(sign * value({**policy, **own}) for own in pure)


def figures(policy: Policy) -> dict[str, float]:
    against = [value({**UNIFORM, **seat_of(policy, seat)}) for seat in (0, 1)]
    exploitability = (best_reply(policy, 0) + best_reply(policy, 1)) / 2
    return dict(zip(FIGURES, (exploitability, value(policy), against[0], -against[1]), strict=True))


def policy_of(folder: Path) -> Policy:
    """Return a model's probability of a chip at every information set."""
    import torch

    from rl_agents.chat.template import Dialogue, load_tokenizer, make_context
    from rl_agents.inference.torch_model import load_causal_lm

    context, model = make_context("append", tokenizer := load_tokenizer(folder)), load_causal_lm(folder, "float32")
    game, found = KuhnPoker(), {}
    for name in UNIFORM:
        card, _, history = name.partition(" ")
        game.own, game.cards, game.history = None, card * 2, history if history != "pb" else ""
        dialogue = Dialogue.start(game.observation())
        if history == "pb":
            said = [*tokenizer.encode(MOVES[False][0], add_special_tokens=False), context.template.stop_token_ids[0]]
            game.history = history
            dialogue = dialogue.after(context.prompt(dialogue), said, MOVES[False][0], game.observation())
        (word,) = tokenizer.encode(MOVES[history.endswith("b")][1], add_special_tokens=False)
        with torch.no_grad():
            logits = model(torch.tensor([context.prompt(dialogue)])).logits[0, -1]
        found[name] = float(torch.softmax(logits.double(), -1)[word])
    return found


def run(opponent: str, seed: int, keys: list[str]) -> dict[str, Any]:
    """Train, and return the figures at the start and at every checkpoint."""
    from rl_agents.trainer.algorithm import AgentConfig

    flags = ["--algo", "rloo", "--env", ENV, "--local", "--set", f"env.opponent={opponent}", *KEYS, *keys]
    model = parse_assignments([key for key in KEYS if key.startswith("starter")])
    start = AgentConfig().environment(ENV).training(algo="rloo", **model).local().completed().model_dir
    with trained(flags, seed) as output:
        folders = {0: Path(start), **{int(f.name): f / "hf" for f in sorted((output / "checkpoints").iterdir())}}
        return {"policies": {step: policy_of(folder) for step, folder in folders.items()}}


def table() -> str:
    """Return the table of docs/how-to/self-play.md: means over the seeds with 95 % intervals."""
    rows = []
    for opponent, runs in load("self_play")["runs"].items():
        for when, step in (("start", 0), ("end", -1)):
            ends = [figures(list(own["policies"].values())[step]) for own in runs.values()]
            rows.append([f"{opponent}, {when}", *(mean_text(end[name] for end in ends) for name in FIGURES)])
    return markdown(["env.opponent", *FIGURES], rows)


def main() -> None:
    parser = command_line(__doc__, {"seeds": 3, "opponents": list(OPPONENTS)})
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    runs = part_of("self_play", "runs")
    for opponent, seed in product(args.opponents, range(args.seeds)):
        own = runs.setdefault(opponent, {})
        if str(seed) not in own:
            own[str(seed)] = run(opponent, seed, args.set)
            print(opponent, seed, {s: figures(p) for s, p in own[str(seed)]["policies"].items()}, file=sys.stderr)
        write_figures("self_play", f"python -m benchmarks.self_play --seeds {args.seeds}", {"runs": runs})
    print(table())


if __name__ == "__main__":
    main()
