"""What the marked blocks of README and docs/research say, from the results on file (`benchmarks.doc_numbers`).

A record is a text with the measured numbers of its block, in their order. Literal numbers in it are settings, or the
block says that they are not on file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from benchmarks import equal_steps_page as equal
from benchmarks import real_methods
from benchmarks.claims.judge import CONFIDENCE
from benchmarks.doc_tables import COLUMNS, lasts, on_file, turns_until
from benchmarks.equal_steps import METHODS, WORLDS
from benchmarks.exact_worlds.__main__ import table as worlds_table
from benchmarks.referee import over_starts
from benchmarks.report import load, shown
from benchmarks.several_starts import at_budget as at_end
from benchmarks.several_starts import runs_on_file
from rl_agents.reporting.statistics import Interval, student_interval

Record = Callable[[], str]
T3 = "{} + T3, consistent, force_answer, k=1"
CIRCUITS_T3 = "{} + T3, force_answer, k=3"
T3_METHODS = ("grpo", "ppo", "gspo")


def joined(*parts: str) -> str:
    return "; ".join(parts)


def span(values: Iterable[float], form: str = ".2f", scale: float = 1.0) -> str:
    """The lowest and the highest value."""
    known = sorted(values)
    return joined(*(f"{scale * value:{form}}" for value in (known[0], known[-1])))


def percent(values: Iterable[float]) -> str:
    known = [round(100 * value) for value in sorted(values)]
    return f"{known[0]} to {known[-1]}%"


# --- grids of runs


def cells(file: str, arm: str, *names: str) -> str:
    """Cells of `benchmarks.doc_tables.COLUMNS`."""
    return joined(*(COLUMNS[name](on_file(file)[arm]) for name in names))


def started(file: str, arm: str) -> str:
    return f"{fmean(next(iter(run['success'].values())) for run in on_file(file)[arm]):.2f}"


def ends(file: str, arm: str) -> list[float]:
    return [list(run["success"].values())[-1] for run in on_file(file)[arm]]


def ended(file: str, *arms: str) -> str:
    return joined(*(f"{fmean(ends(file, arm)):.2f}" for arm in arms))


def tokens(file: str, arm: str) -> float:
    return fmean(run["sampled_tokens"] for run in on_file(file)[arm])


def saved(file: str, arm: str) -> list[float]:
    """Shares of the sampled tokens that T3 saves, by method; ``arm`` has a place for it."""
    return [1 - tokens(file, arm.format(method)) / tokens(file, method) for method in T3_METHODS]


def default_job(algo: str, *parts: str) -> str:
    own = load("default_job")["table"][algo]
    return joined(*(shown(Interval(**own[part])) for part in parts))


def default_run() -> str:
    arms = load("default_job")["table"]
    gap = max(own["engine_logprob_gap_max"] for own in arms.values())
    sampled = {algo: f"{own['sampled_tokens'] / 1000:.0f} k" for algo, own in arms.items()}
    figures = (default_job("grpo", "start", "end"), sampled["grpo"], default_job("ppo", "end"), sampled["ppo"])
    return joined(*figures, f"{gap:.1e}".replace("e-0", "e-"))


def t3_window() -> str:
    gain = fmean(fmean(ends("t3", T3.format(method))) - fmean(ends("t3", method)) for method in T3_METHODS)
    return joined(f"{gain:.2f}", percent(saved("t3", T3)))


def t3_elsewhere() -> str:
    """Tokens with T3, relative to GRPO's, on three environments, and two numbers that are not on file."""
    shares = []
    for env in ("situation_puzzles", "preference_estimation", "movie_recommendation"):
        arms = on_file(f"active_{env}")
        (ours,) = (arm for arm in arms if "T3" in arm)
        shares.append(tokens(f"active_{env}", ours) / tokens(f"active_{env}", "grpo"))
    return joined(span(shares), "0.52", "0.57")


def pooled_gain() -> str:
    """Success at the start of t3_lost_threads, and T3's gain on GuessNumbers, the mean of three methods by seed."""
    pairs = [zip(ends("t3", T3.format(method)), ends("t3", method), strict=True) for method in T3_METHODS]
    gains = [fmean(seed) for seed in zip(*([ours - other for ours, other in pair] for pair in pairs), strict=True)]
    return joined(started("t3_lost_threads", "grpo"), f"{student_interval(gains, CONFIDENCE):+.3f}")


def saved_tokens() -> str:
    usual = percent(saved("t3", T3))
    late = percent(saved("t3_circuit_decoding", CIRCUITS_T3))
    return joined(usual, late, late, "34%")


def lost_elsewhere() -> str:
    """Success that imitation and PivotRL lose in the other domains."""
    base = on_file("pivotrl_panel")["base"]

    def lost(arm: str) -> float:
        runs = on_file("pivotrl_panel")[arm]
        pairs = zip(lasts(runs, "retained"), lasts(base, "retained"), strict=False)
        return fmean(before - after for after, before in pairs)

    pivot = max(lost("PivotRL"), lost("PivotRL, foreign expert"))
    return joined(*(f"{value:.2f}" for value in (lost("sft"), lost("sft, foreign expert"), pivot)))


def long_answers() -> str:
    weak, usual = "prs_long_form_weak", "prs_long_form"
    return joined(
        started(weak, "grpo, prs"), "0.41; 0.17", ended(weak, "grpo, prs", "grpo, 0-1"), started(usual, "grpo, prs"),
        ended(usual, "grpo, prs", "grpo, 0-1"),
    )  # fmt: skip


# --- equal steps


def at_budget(world: str, *arms: str) -> str:
    """Mean success at the budget of a world's table in equal-steps.md."""
    found = equal.on_file()[world]
    measure = equal.at_steps(equal.budget_of(world, found))
    return joined(*(f"{fmean(map(measure.of, found[arm].values())):.2f}" for arm in arms))


def lead(world: str, ours: str, other: str) -> str:
    found = equal.on_file()[world]
    return equal.difference(equal.leads(found[ours], found[other], equal.at_steps(equal.budget_of(world, found))))


def all_steps_of_failures() -> str:
    """3spo with all steps of failures and with the last ones, where both were run."""
    taxi, last = equal.on_file()["taxi"]["3spo"], "3spo, last steps of failures"
    lowest = min(list(run["success"].values())[-1] for run in taxi.values())
    pairs = [at_budget(world, "3spo", last) for world in ("guess_numbers", "errand", "lake")]
    return joined(f"{lowest:.2f}", *pairs)


def two_starts() -> str:
    """Mean starts of the two models of circuit_decoding."""
    arms = equal.on_file()["circuit_decoding"]
    means = (fmean(run["success"]["0"] for run in arms[arm].values()) for arm in ("grpo", "ppo"))
    return joined(f"{equal.SAME_START:.2f}", *(f"{mean:.2f}" for mean in means))


def longest_runs() -> str:
    """Thousands of steps on lake: of 3spo, then the lowest and highest mean of the other methods."""
    arms = equal.on_file()["lake"]
    steps = {arm: fmean(sum(run["steps"]) for run in runs.values()) / 1000 for arm, runs in arms.items()}
    others = sorted(round(steps[arm]) for arm in METHODS if arm in steps and not arm.startswith("3spo"))
    return f"{steps['3spo']:.0f} k; {others[0]} k; {others[-1]} k"


def webshop_measure() -> equal.Measure:
    return equal.at_steps(equal.budget_of("webshop", equal.on_file()["webshop"]))


def from_other_start(arm: str) -> list[float]:
    """Leads over GRPO on webshop without shared requests, from the other start, by seed."""
    found, measure = on_file("equal_steps_webshop_unseen"), webshop_measure()
    pairs = zip(found[f"{arm}, {equal.OTHER}"], found[f"grpo, {equal.OTHER}"], strict=True)
    return [measure.difference(*pair) for pair in pairs]


def another_start() -> str:
    """On webshop: the largest change without shared requests, both starts, and leads over GRPO from the other start."""
    repeated, other, measure = on_file("equal_steps_webshop_unseen"), f", {equal.OTHER}", webshop_measure()
    before = {arm: equal.on_file()["webshop"][arm] for arm in repeated if other not in arm}
    changes = [
        fmean(map(measure.of, repeated[arm])) - fmean(measure.of(runs[str(seed)]) for seed in range(len(repeated[arm])))
        for arm, runs in before.items()
    ]
    starts = (started("equal_steps_webshop_unseen", f"grpo{other}"), started("equal_steps_webshop", "grpo"))
    leads = (equal.difference(from_other_start(arm)) for arm in ("3spo", equal.CHAIN))
    return joined(f"{max(map(abs, changes)):.2f}", *starts, *leads)


def lost_lead() -> str:
    return joined(lead("webshop", "3spo", "grpo")[1:5], f"{abs(fmean(from_other_start('3spo'))):.2f}")


def which_pretrained() -> str:
    means = {method: f"{over_starts(found).mean:.2f}" for method, found in real_methods.ends("treasure").items()}
    budget = f"{real_methods.BUDGETS['treasure'].tokens / 1000:.1f} k"
    ahead, behind = ("3spo", "chain-gae (ours)", "grpo"), ("vspo", "ppo", "gigpo", "steppo")
    tools = [f"{over_starts(real_methods.ends('clerk')[method]).mean:.2f}" for method in ("3spo", "grpo")]
    clerk = f"{real_methods.BUDGETS['clerk'].tokens / 1000:.0f} k"
    treasure = (*(means[method] for method in ahead), budget, *(means[method] for method in behind))
    return joined(*treasure, tools[0], clerk, tools[1])


# --- figures of other benchmarks


def medians(file: str, *names: str, scale: float = 1.0, form: str = ".2f") -> str:
    summary = load(file)["summary"]
    return joined(*(f"{scale * summary[name]['median']:{form}}" for name in names))


def raw_vllm() -> str:
    window, ratio = load("rollout_efficiency_135M_window2")["summary"], "ratio_to_turn_by_turn"
    parts = ("env_runner_us_per_step", "driver_us_per_step")
    share = sum(window[part]["median"] for part in parts) / window["engine_us_per_step"]["median"]
    return joined(
        medians("rollout_efficiency_135M_append", *parts, scale=1e-3, form=".1f"),
        f"{window[ratio]['median']:.2f}", f"{window[ratio]['max'] - window[ratio]['min']:.1f}",
        medians("rollout_efficiency_135M_window2", *parts, scale=1e-3, form=".1f"), f"{100 * share:.1f}%",
    )  # fmt: skip


def searched() -> str:
    """CPU seconds of a step of 3spo and GRPO; ratios by step and by trained token; shares of the wall time."""
    found = load("searched_step")["summary"]
    costs = (found[f"{name}: CPU-s a step"]["median"] for name in ("3spo", "grpo"))
    ratios = (1 / found[f"grpo over 3spo{unit}"]["median"] for unit in ("", ", a trained token"))
    shares = (f"{100 * found[f'3spo: {part}']['median']:.0f}%" for part in ("learning", "sampling", "watching"))
    return joined(*(f"{cost:.2f}" for cost in costs), *(f"{ratio:.1f}" for ratio in ratios), *shares)


def shared_rows() -> str:
    shapes = {shape["shape"]: shape["update_ratio"] for shape in load("shared_rows")["models"]["2 M"]}
    chosen = ("dialogue of 20 turns", "tree of calls, depth 6", "3SPO siblings, prompt 200", "group of 8, prompt 512")
    return joined(*(f"{next(v for name, v in shapes.items() if name.startswith(own)):.1f}" for own in chosen))


def cheaper_engine() -> str:
    return span((case["vllm over torch"]["median"] for case in load("engine_choice")["cases"].values()), ".1f")


def env_steps() -> str:
    found = load("env_steps")["summary"]
    steps = sorted(row["median"] for name, row in found.items() if name.endswith(": step ms, new task"))
    return joined(span(steps[:-2]), span(steps[-2:]), "1.5; 1 to 10%")


def more_tokens(step_s: float, base: tuple[int, int], *cases: tuple[int, int]) -> str:
    """Tokens a second of (env runners, engines), relative to ``base``."""
    lines = {
        (line["env runners"], line["engines"]): line["tokens per s"]["median"]
        for line in load("env_runner_curve")["lines"]
        if line["step_s"] == step_s
    }
    return joined(*(f"{lines[case] / lines[base]:.1f}" for case in cases))


def attack(env: str, *settings: str, digits: int = 2) -> str:
    """Reward of the best attack in each setting."""
    rewards = {(row["env"], row["setting"]): row["reward"] for row in load("reward_attacks")["rows"]}
    return joined(*(f"{rewards[env, name]:.{digits}f}" for name in settings))


def attacks() -> str:
    """The lines of the table of attacks, each with a start and an end of training."""
    taught, active = "{}, starter's tasks".format, "active_{}".format
    lines = [
        (attack("guess_numbers", "exact"), "family", "grpo", "grpo"),
        (attack("circuit_decoding", "exact"), active("circuit_decoding"), "grpo", "steppo"),
        (attack("movie_recommendation", "best movie", taught("best movie")),
         active("movie_recommendation"), "grpo", "grpo"),
        (joined("0.88", attack("preference_estimation", "cosine", taught("cosine"))),
         active("preference_estimation"), "grpo", "grpo + T3, force_answer, k=2"),
        (attack("situation_puzzles", "word F1", "character F1"),),
        (attack("multihop_qa", taught("em")), "multihop_qa", "grpo", "steppo"),
        (attack("multihop_qa", "PRS, short form, of 2.1"),),
        (attack("long_form_qa", taught("pass"), "points"), "long_form_qa", "grpo", "grpo"),
        (attack("long_form_qa", "PRS, long form, of 3.1"),),
        (joined(attack("paper_search", taught("discovery")), "4.66; 5.42"),),
        (attack("alfworld", "win"), "alfworld", "grpo", "steppo"),
        (attack("webshop", "score", taught("success")), "webshop", "grpo", "grpo"),
        (attack("pivot", "tool_name", "tool_name, parallel=free"),),
    ]  # fmt: skip
    return joined(
        *(joined(own, *(started(runs[0], runs[1]), ended(runs[0], runs[2])) if runs else ()) for own, *runs in lines)
    )


def gateway() -> str:
    found, costs = load("blackbox_clients")["table"]["built-in loop"], load("blackbox_clients")["cost"]
    shown = (
        joined(*(f"{own[part]:.2f}" for part in ("mean", "low", "high"))) for own in (found["start"], found["end"])
    )
    return joined(*shown, span((own["runner_ms"] for own in costs.values()), ".1f"))


def from_three_starts(*arms: str) -> str:
    """Mean success at the budget of webshop, each method tuned alike."""
    found = runs_on_file("starts_webshop")
    ends = (at_end(found[arm], WORLDS["webshop"].budget, arm).values() for arm in arms)
    return joined(*(f"{fmean(values):.2f}" for values in ends))


def choice_without_critic() -> str:
    grpo, *others = (float(at_budget("guess_numbers", arm)) for arm in ("grpo", "gigpo", "hgpo", equal.BEFORE))
    return f"{max(others) - grpo:.2f}; {grpo:.2f}; {max(others):.2f}"


def choice_of_states() -> str:
    shop = (equal.CHAIN, "gigpo", "grpo")
    return joined(at_budget("alfworld", *shop), from_three_starts(*shop))


def choice_of_search() -> str:
    gains = [
        float(at_budget(world, arm)) - float(at_budget(world, other))
        for world, arm, other in (("alfworld", "3spo", "grpo"), ("errand", "grpo", "3spo"))
    ]
    return joined(*(f"{gain:.2f}" for gain in gains), from_three_starts("3spo"))


def choice_of_critics() -> str:
    levels = runs_on_file("claims_gae_level")
    means = (
        fmean(list(run["success"].values())[-1] for run in levels[f"{arm}, gamma 0.99"].values())
        for arm in ("steppo", "token GAE")
    )
    short = fmean(ends("steppo", "ppo, gamma 0.99")) - fmean(ends("steppo", "steppo"))
    return joined(at_budget("alfworld", "steppo", "ppo"), *(f"{mean:.2f}" for mean in means), f"{short:.2f}")


def choice_of_groups() -> str:
    gain = fmean(ends("vspo", "dapo")) - fmean(ends("vspo", "grpo"))
    grpo, dapo = (float(at_budget("webshop", arm)) for arm in ("grpo", "dapo"))
    return f"{gain:.2f}; {tokens('vspo', 'dapo') / tokens('vspo', 'grpo'):.1f}; {grpo - dapo:.2f}"


def every_method() -> str:
    """The start of guess_numbers, and the lowest and the highest mean of all methods."""
    start = student_interval([run["success"]["0"] for run in on_file("family")["grpo"]])
    return joined(
        f"{start.mean:.2f}; {start.low:.2f}; {start.high:.2f}",
        span(fmean(ends("family", arm)) for arm in on_file("family")),
    )


# --- exact worlds

WORLDS_SHOWN = ("grpo", "gigpo", "hgpo", "steppo", "chain λ=0", "chain λ=0.95", "chain λ=0.95, solved again")
SAFE, SEARCHED = "again, λ=0.7, corrected", ("3spo", "3spo, 4 paths", "3spo, w/o paths", "published", "grpo")
UNCERTAIN = ("slippery", "noisy", "aliased")


def worlds(file: str, column: str, arms: Sequence[str]) -> str:
    found = load(file)["worlds"]
    return worlds_table({name: {arm: rows[arm] for arm in arms} for name, rows in found.items()}, column)


def errors(file: str, column: str, arms: Sequence[str], names: Iterable[str] = ()) -> list[float]:
    found = load(file)["worlds"]
    return [found[name][arm][column] for name in (names or found) for arm in arms]


def worlds_noise() -> str:
    usual = [name for name in load("exact_worlds")["worlds"] if name != "quest"]
    return joined(
        *(f"{max(errors('exact_worlds', 'mean_error', WORLDS_SHOWN, own)):.2f}" for own in (usual, ["quest"]))
    )


def searches_noise() -> str:
    found, both = load("exact_worlds_searches")["worlds"], ("3spo", "grpo")
    usual = [
        found[name][arm]["final_error"] for name in found for arm in both
        if (arm, name) != ("grpo", "loops") and not (arm == "3spo" and name in UNCERTAIN)
    ]  # fmt: skip
    wide = errors("exact_worlds_searches", "final_error", ["3spo"], UNCERTAIN)
    others = errors("exact_worlds_searches", "final_error", [arm for arm in SEARCHED if arm not in both])
    return joined(f"{max(usual):.2f}", f"{found['loops']['grpo']['final_error']:.2f}", span(wide), f"{max(others):.2f}")


def correction() -> str:
    found = load("exact_worlds_lambda")["worlds"]
    means = (fmean(rows[arm]["mean"] for rows in found.values()) for arm in (SAFE, "again, bounded, clipped", "grpo"))
    lowest = min(rows[SAFE]["worst"] for name, rows in found.items() if name != "household")
    return joined(*(f"{mean:.2f}" for mean in means), f"{lowest:.2f}", f"{found['household'][SAFE]['worst']:.2f}")


def accuracy() -> str:
    found = load("exact_worlds")["worlds"]
    cosine = {arm: fmean(rows[arm]["step_cosine"] for rows in found.values()) for arm in WORLDS_SHOWN}
    return joined(span(cosine[arm] for arm in WORLDS_SHOWN[:4]), *(f"{cosine[WORLDS_SHOWN[n]]:.2f}" for n in (4, 6)))


RECORDS: Mapping[str, Record] = {
    # README.md
    "first run": lambda: default_job("grpo", "start", "end"),
    # algorithms/README.md
    "which grpo": choice_without_critic,
    "which chain": choice_of_states,
    "which 3spo": choice_of_search,
    "which critic": choice_of_critics,
    "which dapo": choice_of_groups,
    "which pretrained": which_pretrained,
    "which sft": lambda: joined(started("real_model_treasure", "grpo"), ended("real_model_treasure", "grpo")),
    "which t3": lambda: percent([*saved("t3", T3), *saved("t3_circuit_decoding", CIRCUITS_T3)]),
    "family": every_method,
    # benchmarks.md
    "default run": default_run,
    "dapo": lambda: f"{tokens('vspo', 'dapo') / tokens('vspo', 'grpo'):.1f}",
    "t3 window": t3_window,
    "weak start": lambda: started("prs_long_form_weak", "grpo, prs"),
    "pivotrl turns": lambda: joined(
        turns_until(on_file("pivotrl")["PivotRL"]), "0.85", turns_until(on_file("pivotrl")["end-to-end GRPO"]), "5.7 k"
    ),
    "foreign expert": lambda: f"{fmean(ends('pivotrl', 'random turns, strict reward, foreign expert')):.1f}",
    "gateway": gateway,
    "attacks": attacks,
    "worlds noise": worlds_noise,
    "worlds": lambda: worlds("exact_worlds", "mean", WORLDS_SHOWN),
    "correction": correction,
    "accuracy": accuracy,
    "searches noise": searches_noise,
    "searches": lambda: worlds("exact_worlds_searches", "final", SEARCHED),
    # equal-steps.md, how-we-compare.md
    "two starts": two_starts,
    "longest runs": longest_runs,
    "start spread": lambda: f"{equal.start_spread(equal.on_file()):.2f}",
    "another start": another_start,
    "lost lead": lost_lead,
    # claims.md
    "overview of claims": lambda: joined(
        percent(saved("t3", T3)), percent(saved("t3_circuit_decoding", CIRCUITS_T3)), "1 to 3.1; 0.99; 0.95"
    ),
    "pooled gain": pooled_gain,
    "saved tokens": saved_tokens,
    "lost elsewhere": lost_elsewhere,
    # negative-results.md
    "all steps of failures": all_steps_of_failures,
    "last steps": lambda: joined(
        at_budget("guess_numbers", "3spo, last steps of failures"), at_budget("guess_numbers", "grpo")
    ),
    "goal in key": lambda: joined(at_budget("taxi_complete", "3spo"), "0.98; 0.67; 0.93"),
    "t3 elsewhere": t3_elsewhere,
    "long answers": long_answers,
    "safe lambda": lambda: f"{load('exact_worlds_lambda')['worlds']['aliased'][SAFE]['mean']:.2f}",
    # speed.md
    "raw vllm": raw_vllm,
    "searched step": searched,
    "cheaper engine": cheaper_engine,
    "shared rows": shared_rows,
    "env steps": env_steps,
    "second engine": lambda: more_tokens(0.0, (1, 1), (1, 2)),
    "env runners": lambda: joined(more_tokens(0.01, (1, 1), (2, 1)), more_tokens(0.01, (1, 1), (4, 2))),
    "weights": lambda: f"{load('scale_simulation')['cases'][2]['weights us'] / 1000:.1f}",
}
