"""Sweep files: valid keys, the trials that they define, and errors."""

from pathlib import Path

import pytest

from rl_agents.cli import main
from rl_agents.cli.tune import resolve_trials
from rl_agents.config import load_recipe, parse_assignments
from rl_agents.config.options import keys_of
from rl_agents.errors import InputError
from rl_agents.tuning.sweep import Asha, Grid, Range, SweepOptions, expand, load_sweep, trial_name

SWEEPS = Path(__file__).parents[2] / "tune_configs" / "sweeps"
GRID = "space: {vspo_temperature: [0.1, 1.0], vspo_alpha: [1, 2, 4]}\nset: {algo: vspo}\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(text)
    return path


def test_grids_cross_and_seeds_repeat_each_point(tmp_path: Path) -> None:
    sweep = load_sweep(write(tmp_path, GRID + "seeds: 2\n"), {"seed": 5})
    assert len(sweep.trials) == 2 * 3 * 2
    assert [(t.keys["vspo_temperature"], t.keys["vspo_alpha"], t.seed) for t in sweep.trials[:3]] == [
        (0.1, 1, 5), (0.1, 1, 6), (0.1, 2, 5)
    ]  # fmt: skip
    assert [t.point for t in sweep.trials[:4]] == [0, 0, 1, 1]
    assert len({t.name for t in sweep.trials}) == 12


def test_ranges_are_drawn_once_in_each_part_and_the_same_for_all_seeds() -> None:
    space = {"lr": Range(1e-5, 1e-1, log=True), "algo": Grid(("grpo", "rloo"))}
    trials = expand(space, samples=4, seeds=2, first_seed=0)
    rates = sorted({t.keys["lr"] for t in trials})
    assert len(rates) == 8, "another draw for each point, the same for its seeds"
    edges = [1e-5 * 10 ** (4 * part / 8) for part in range(9)]
    assert all(low * 0.999 <= rate <= high * 1.001 for low, rate, high in zip(edges, rates, edges[1:], strict=False))
    assert trials == expand(space, samples=4, seeds=2, first_seed=0)
    assert trials != expand(space, samples=4, seeds=2, first_seed=1)


def test_a_range_of_a_whole_key_gives_whole_numbers() -> None:
    values = [t.keys["group_size"] for t in expand({"group_size": Range(2, 64, True, whole=True)}, 5, 1, 0)]
    assert all(isinstance(value, int) and 2 <= value <= 64 for value in values)
    dice = Range(1, 6, whole=True)
    assert [dice.at((part + 0.5) / 60) for part in range(60)] == [face for face in range(1, 7) for _ in range(10)]
    assert [dice.at(share) for share in (0.0, 1.0)] == [1, 6]


def test_values_reach_a_run_as_they_are_written(tmp_path: Path) -> None:
    text = "set: {algo: ppo, env.code: 007}\nspace: {model: [010, 1e3]}\n"
    (tmp_path / "saved.yaml").write_text(load_sweep(write(tmp_path, text)).to_yaml())
    sweep = load_sweep(tmp_path / "saved.yaml")
    runs = [sweep.settings(trial) for trial in sweep.trials]
    assert [(str(run.env_options["code"]), run.model) for run in runs] == [("007", "010"), ("007", "1e3")]


def test_trial_names_are_short_file_names() -> None:
    name = trial_name(7, {"model": "some/very long path" * 20, "lr": 0.00030000001}, 2)
    assert name.startswith("007-model=some_very_long_path") and "/" not in name and len(name) <= 100


def test_the_saved_sweep_is_the_same_sweep(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("algo: vspo\ngroup_size: 4\nkl_coef: 1.0e-3\n")
    text = "recipe: recipe.yaml\nspace: {lr: {low: 1.0e-5, high: 1.0e-3, log: true}}\nsamples: 3\nasha: {grace: 2}\n"
    sweep = load_sweep(write(tmp_path, text), parse_assignments(["iterations=9", "entropy_coef=1e-5"]), local=True)
    (tmp_path / "elsewhere").mkdir()
    saved = tmp_path / "elsewhere" / "saved.yaml"
    saved.write_text(sweep.to_yaml())
    assert load_sweep(saved) == sweep
    assert sweep.keys == {"algo": "vspo", "group_size": 4, "kl_coef": 1e-3, "iterations": 9, "entropy_coef": 1e-5}
    assert sweep.settings(sweep.trials[0]).engine == "torch"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("spcae: {lr: [1]}", ["unknown key of a sweep 'spcae'", "did you mean 'space'?"]),
        ("lr: [1.0e-3]", ["unknown key of a sweep 'lr'", "under `set` or `space`"]),
        ("set: {algo: grpo}", ["no key varies"]),
        ("space: {vspo_temprature: [1.0]}", ["space: unknown key 'vspo_temprature'", "'vspo_temperature'"]),
        ("space: {lr: {low: 1}}", ["space: lr: the range lacks 'high'"]),
        ("space: {lr: {low: 2, high: 1}}", ["low=2 must be below high=1"]),
        ("space: {lr: {low: 0, high: 1, log: true}}", ["must be above 0 with log: true"]),
        ("space: {algo: {low: 0, high: 1}}", ["only a number can have a range"]),
        ("space: {lr: [1.0, 1.0]}", ["a value occurs twice"]),
        ("space: {lr: 1.0}", ["write a list of values"]),
        ("space: {seed: [1, 2]}", ["seeds: N"]),
        ("space: {lr: [1.0]}\nsamples: 4", ["no range to draw from"]),
        ("space: {lr: [1.0]}\nasha: {grac: 2}", ["unknown key 'asha.grac'", "did you mean 'asha.grace'?"]),
        ("space: {lr: [1.0, 2.0]}\npbt: {}", ["unknown key of a sweep 'pbt': valid: asha, autoscaling, local, "]),
        ("space: {lr: {low: 1, high: 2}}\nsamples: 20000", ["20000 trials, 10000 at most"]),
        ("name: a/b\nspace: {lr: [1.0]}", ["name='a/b'"]),
    ],
)
def test_mistakes_name_file_key_and_nearest(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as error:
        load_sweep(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("text", "keys", "local", "message"),
    [
        (GRID, {"vspo_alpha": 3}, False, "the sweep varies vspo_alpha itself"),
        ("space: {num_learners: [2, 1]}\nset: {env: guess_numbers, learner_sharding: fsdp}\n", {}, False,
         r"sweep\.yaml: trial num_learners=1: learner_sharding=fsdp needs"),
        ("space: {lr: [1.0e-3]}\nset: {engine: vllm}\n", {}, True, "--local means engine=torch"),
        ("set: {algo: vspo, vspo_temperature: 0.5}\nspace: {vspo_mode: [none, random]}\n", {}, False,
         "key 'vspo_temperature' has no effect without vspo_mode=value in any trial"),
    ],
)  # fmt: skip
def test_every_trial_is_resolved_before_the_first_begins(tmp_path, text: str, keys, local: bool, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=message):
        resolve_trials(load_sweep(path, keys, local=local), str(path))


def test_asha_compares_trained_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "space: {lr: [1.0e-3, 1.0e-2]}\nset: {env: guess_numbers, iterations: 40}\nasha: {}\n")
    assert main(["tune", str(path), "--local", "--output", str(tmp_path / "out")]) == 2
    assert "sweep.yaml: asha.grace=10: " in (said := capsys.readouterr().err) and "set eval_interval=10" in said


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_sweeps(path: Path) -> None:
    sweep = load_sweep(path)
    assert len(load_recipe(str(path)).get("set", {})) <= 20
    if sweep.keys.get("model", "starter") == "starter":  # the others name a model that a person has to download
        assert resolve_trials(sweep, str(path))


def test_a_key_may_be_idle_in_some_trials(tmp_path: Path) -> None:
    sweep = load_sweep(
        write(tmp_path, "set: {algo: vspo, vspo_temperature: 0.5}\nspace: {vspo_mode: [value, random]}\n")
    )
    value, random = (sweep.settings(trial) for trial in sweep.trials)
    assert value.vspo_temperature == 0.5 and "vspo_temperature" not in random.explicit


def test_the_guide_names_every_key_of_a_sweep() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "tune.md").read_text(encoding="utf-8")
    for options in (SweepOptions, Asha):
        assert [name for name in keys_of(options) if name not in guide] == []
