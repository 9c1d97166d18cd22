"""The train command from flags to output folder, with a small learner instead of the RLlib algorithm."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from chat_models import save_chat_model
from coin_agent import CoinAgent, coin_episode

from rl_agents.algorithms import ALGORITHMS
from rl_agents.cli import main
from rl_agents.cli.parser import main_parser
from rl_agents.cli.train import plan_new, success_lines
from rl_agents.cli.tune import resolve_trials
from rl_agents.trainer import measure as steps
from rl_agents.trainer.algorithm import AgentConfig
from rl_agents.trainer.resolve import resolve
from rl_agents.tuning.sweep import load_sweep

ROOT = Path(__file__).parents[2]

KEYS = ["--set", "eval_episodes=32", "save_trajectories=2", "eval_interval=2", "checkpoint_interval=2", "model=starter"]


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> list[CoinAgent]:
    """Collect the agents that the command builds."""
    built: list[CoinAgent] = []

    def build(settings):
        built.append(CoinAgent(settings))
        return built[-1]

    monkeypatch.setattr("rl_agents.cli.train.build_algorithm", build)
    return built


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def without_clock(records: list[dict]) -> list[dict]:
    return [{k: v for k, v in r.items() if "seconds" not in k and not k.startswith("timing_s")} for r in records]


def test_a_run_leaves_what_the_contract_promises(agents, tmp_path, capsys) -> None:
    out = tmp_path / "run"
    assert main(["--algo", "grpo", "--env", "guess_numbers", "--iterations", "5", "--output", str(out), *KEYS]) == 0

    records = lines(out)
    assert [r["iteration"] for r in records] == [0, 1, 2, 3, 4, 5]
    assert [r["iteration"] for r in records if "eval/success_rate" in r] == [0, 2, 4, 5]
    report = summary(out)
    assert report["success_end"] > report["success_start"]
    low, high = report["success_end_interval"]
    assert low < report["success_end"] < high
    assert (report["iterations"], report["status"], report["episodes"]) == (5, "done", 40)
    assert (report["sampled_tokens"], report["failed_episodes"]) == (80, 0)
    assert report["seconds"] > 0 and report["cpu_seconds"] > 0
    assert report["checkpoint"] == "checkpoints/000005"
    assert (report["algorithm"], report["env"], report["engine"]) == ("grpo", "guess_numbers", "engine coin: flips")
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == ["000002", "000004", "000005"]
    assert yaml.safe_load((out / "config.yaml").read_text())["iterations"] == 5
    assert (out / "success.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert list((out / "tensorboard").iterdir())
    assert len((out / "trajectories/000003.jsonl").read_text().splitlines()) == 2
    assert agents[0].stopped

    printed = capsys.readouterr().out.splitlines()
    assert any(line.startswith("iter 0/5  (eval 0.") for line in printed)
    assert any(
        line.startswith("iter 5/5  success 0.") and "logprob diff 2e-6" in line and "(eval" in line for line in printed
    )

    (ends,) = (line for line in printed if line.startswith("success on the test tasks: 0."))
    assert ends.endswith("; 32 episodes of 32 tasks")


@pytest.mark.parametrize(
    ("test", "training", "said"),
    [
        ((0.29, 0.30), (0.25, 0.45), True),  # test tasks with other secrets than those of training
        ((0.29, 0.42), (0.25, 0.45), False),
        ((0.29, 0.30), (0.25, 0.29), False),  # within the noise
        ((0.29, None), (0.25, 0.45), False),
    ],
)
def test_the_last_lines_compare_training_and_test_tasks(test, training, said: bool) -> None:
    summary = {"iterations": 15, "seconds": 99.4, "eval_episodes": 56, "eval_tasks": 7}
    for name, rates in (("success", test), ("policy", training)):
        for end, rate in zip(("start", "end"), rates, strict=True):
            summary[f"{name}_{end}"] = rate
            summary[f"{name}_{end}_interval"] = None if rate is None else [rate - 0.05, rate + 0.05]
    lines = success_lines(summary)
    if test[1] is not None:
        assert lines.pop(0).startswith("success on the test tasks: 0.29 [0.24, 0.34] -> 0.")
    assert lines.pop(0).startswith(f"success on training tasks: 0.25 [0.20, 0.30] -> {training[1]:.2f} [")
    assert [line.startswith("success changed by +0.20 on training tasks, but by +0.01 on test") for line in lines] == [
        True
    ] * said


def test_resume_continues_as_if_never_stopped(agents, tmp_path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["--iterations", "6", "--output", str(whole), *KEYS]) == 0
    assert main(["--iterations", "3", "--output", str(parts), *KEYS]) == 0
    assert main(["--resume", str(parts), "--iterations", "6"]) == 0
    resumed = without_clock(lines(parts))
    extra = resumed[3]  # the end of the first part was evaluated, iteration 3 of the whole run was not
    resumed[3] = {k: v for k, v in extra.items() if not k.startswith("eval/")}
    assert resumed == without_clock(lines(whole))
    assert summary(parts)["seconds"] >= lines(parts)[3]["seconds"]
    assert summary(parts)["success_start"] == summary(whole)["success_start"]
    assert agents[-1].settings.eval_interval == 2


def test_resume_after_a_crash_counts_nothing_twice(agents, tmp_path, monkeypatch, capsys) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr(CoinAgent, "fail_at", 4)
    assert main(["--iterations", "6", "--output", str(out), *KEYS]) == 1
    captured = capsys.readouterr().err.strip()
    assert len(captured.splitlines()) == 1
    assert f"{out}/error.log" in captured and "RuntimeError: the coin rolled under the table" in captured
    assert f"--resume {out}" in captured
    assert "Traceback" in (out / "error.log").read_text()
    assert summary(out)["status"] == "failed"
    assert [r["iteration"] for r in lines(out)] == [0, 1, 2, 3]

    monkeypatch.setattr(CoinAgent, "fail_at", None)
    assert main(["--resume", str(out)]) == 0
    assert [r["iteration"] for r in lines(out)] == [0, 1, 2, 3, 4, 5, 6]
    assert summary(out)["episodes"] == 48


def test_a_run_that_goes_on_cannot_be_resumed_beside_itself(agents, tmp_path, monkeypatch, capsys) -> None:
    """It would lose what it wrote since its last checkpoint."""
    out, train, codes = tmp_path / "run", CoinAgent.train, []

    def resume(agent: CoinAgent):
        if agent.iteration == 3:
            codes.append(main(["--resume", str(out)]))
        return train(agent)

    monkeypatch.setattr(CoinAgent, "train", resume)
    assert main(["--iterations", "4", "--output", str(out), *KEYS]) == 0
    assert codes == [2] and "already written to by process" in capsys.readouterr().err
    assert [r["iteration"] for r in lines(out)] == [0, 1, 2, 3, 4] and (out / "trajectories/000003.jsonl").exists()


def test_resume_from_an_older_checkpoint_drops_what_came_after(agents, tmp_path) -> None:
    out = tmp_path / "run"
    assert main(["--iterations", "4", "--output", str(out), *KEYS]) == 0
    assert main(["--resume", str(out / "checkpoints" / "000002"), "--iterations", "3"]) == 0
    assert [r["iteration"] for r in lines(out)] == [0, 1, 2, 3]
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == ["000002", "000003"]
    assert not (out / "trajectories/000004.jsonl").exists()


def test_a_named_checkpoint_goes_on_with_the_keys_that_it_was_written_with(agents, tmp_path, capsys) -> None:
    out = tmp_path / "run"
    assert main(["--iterations", "3", "--output", str(out), *KEYS, "lr=0.1", "kl_coef=0.5"]) == 0
    assert main(["--resume", str(out), "--iterations", "4", "--set", "lr=0.2", "kl_coef=0.6"]) == 0
    capsys.readouterr()
    assert main(["--resume", str(out / "checkpoints" / "000002"), "--set", "kl_coef=0.7"]) == 0
    assert (agents[-1].settings.lr, agents[-1].settings.kl_coef) == (0.1, 0.7)
    assert (
        "000002 continues with the keys that it was written with, not config.yaml's: iterations=3 lr=0.1\n"
        in capsys.readouterr().out
    )
    assert yaml.safe_load((out / "config.yaml").read_text())["lr"] == 0.1


@pytest.mark.parametrize(("while_learning", "completed"), [(False, 2), (True, 3)])
def test_a_signal_saves_the_last_completed_iteration(agents, tmp_path, monkeypatch, while_learning, completed) -> None:
    monkeypatch.setattr(CoinAgent, "signal_at", 3)
    monkeypatch.setattr(CoinAgent, "signal_while_learning", while_learning)
    out = tmp_path / "run"
    assert main(["--iterations", "6", "--output", str(out), *KEYS]) == 130
    assert [r["iteration"] for r in lines(out)] == list(range(completed + 1))
    assert (out / "checkpoints" / f"{completed:06d}" / "state.json").exists()
    assert summary(out)["status"] == "interrupted" and summary(out)["success_end"] is None
    assert agents[0].stopped

    monkeypatch.setattr(CoinAgent, "signal_at", None)
    assert main(["--resume", str(out)]) == 0
    assert [r["iteration"] for r in lines(out)] == list(range(7))


def test_a_second_signal_does_not_save_half_an_optimizer_step(agents, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(CoinAgent, "signal_at", 4)
    monkeypatch.setattr(CoinAgent, "signal_while_learning", True)
    monkeypatch.setattr(CoinAgent, "signals", 2)
    out = tmp_path / "run"
    assert main(["--iterations", "6", "--output", str(out), *KEYS]) == 130
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["000002"]
    assert "stopped after iteration 3 (saved up to 2); resume" in capsys.readouterr().out


def test_a_signal_says_what_it_waits_for(agents, tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.setattr(CoinAgent, "signal_at", 2)
    monkeypatch.setattr(CoinAgent, "signal_while_learning", True)
    assert main(["--iterations", "3", "--output", str(tmp_path / "run"), *KEYS]) == 130
    assert "stopping after the present iteration and its checkpoint" in capfd.readouterr().err


@pytest.mark.parametrize("interrupted", [0, 2, 4])
def test_a_signal_in_an_evaluation_is_made_up_for(agents, tmp_path, monkeypatch, interrupted) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr(CoinAgent, "signal_in_evaluation", interrupted)
    assert main(["--iterations", "4", "--output", str(out), *KEYS]) == 130
    assert not interrupted or "eval/success_rate" not in lines(out)[-1]
    monkeypatch.setattr(CoinAgent, "signal_in_evaluation", None)
    assert main(["--resume", str(out)]) == 0, "there is a checkpoint, also before the first iteration"
    assert [r["iteration"] for r in lines(out)] == [0, 1, 2, 3, 4]
    assert [r["iteration"] for r in lines(out) if "eval/success_rate" in r] == [0, 2, 4]
    assert lines(out)[-1]["rollout/success_rate"] is not None
    assert summary(out)["success_end"] == lines(out)[-1]["eval/success_rate"]


def test_a_finished_run_has_nothing_to_resume(agents, tmp_path, capsys) -> None:
    out = tmp_path / "run"
    assert main(["--iterations", "2", "--output", str(out), *KEYS]) == 0
    assert main(["--resume", str(out)]) == 0
    assert len(agents) == 1
    assert "has completed all 2 iterations" in capsys.readouterr().out


def test_resume_refuses_to_become_another_run(agents, tmp_path, capsys) -> None:
    out = tmp_path / "run"
    assert main(["--algo", "grpo", "--iterations", "2", "--output", str(out), *KEYS]) == 0
    before = (out / "metrics.jsonl").read_text()
    capsys.readouterr()
    for flags, words in (
        (["--set", "algo=ppo"], "that run has algo=grpo, not ppo"),
        (["--seed", "7"], "that run has seed=0, not 7"),
        (["--iterations", "1"], "the checkpoint is already at iteration 2"),
        (["--output", "elsewhere"], "--output with --resume"),
    ):
        assert main(["--resume", str(out), *flags]) == 2
        error = capsys.readouterr().err
        assert words in error and len(error.splitlines()) == 1
    for content, words in (
        ("[{", "build.json: broken JSON"),
        ("{}", "build.json: a list is needed as JSON, found dict"),
    ):
        (out / "build.json").write_text(content)
        assert main(["--resume", str(out), "--iterations", "3"]) == 2
        assert words in (error := capsys.readouterr().err) and len(error.splitlines()) == 1
    (out / "config.yaml").write_text("")
    (out / "build.json").write_text("[]")
    assert main(["--resume", str(out), "--iterations", "3"]) == 2
    assert "config.yaml: damaged: it contains no algo" in capsys.readouterr().err
    assert (out / "metrics.jsonl").read_text() == before


def test_resumed_run_keeps_what_was_chosen_over_later_defaults(agents, tmp_path) -> None:
    out = tmp_path / "run"
    keys = [*KEYS, "lr=0.0123", "max_model_len=400", "env_timeout_s=7"]
    assert main(["--algo", "ppo", "--iterations", "2", "--output", str(out), *keys]) == 0
    first = (out / "config.yaml").read_text()
    assert main(["--resume", str(out), "--iterations", "3"]) == 0
    assert (out / "config.yaml").read_text() == first.replace("iterations: 2\n", "iterations: 3\n")


def test_precedence_defaults_recipe_flags(agents, tmp_path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("group_size: 4\nlr: 1e-3\niterations: 9\n")
    out = tmp_path / "run"
    argv = ["--config", str(recipe), "--iterations", "1", "--output", str(out), *KEYS, "group_size=6"]
    assert main(argv) == 0
    settings = agents[0].settings
    assert (settings.group_size, settings.lr, settings.iterations) == (6, 1e-3, 1)


def test_no_key_of_3spo_changes_which_method_or_which_environment_runs(agents, tmp_path, capsys) -> None:
    def config(name: str, *flags: str) -> dict:
        assert main(["--algo", "3spo", "--iterations", "1", "--output", str(tmp_path / name), *flags]) == 0
        return yaml.safe_load((tmp_path / name / "config.yaml").read_text())

    plain = config("plain", "--set", "eval_episodes=32")
    for number, chosen in enumerate(("score_alpha=50", "search_steps=64", "gamma=0.9", "reading=published")):
        found = config(str(number), "--set", "eval_episodes=32", chosen)
        assert (found["algo"], found["env"]) == (plain["algo"], plain["env"]) == ("3spo", "alfworld"), chosen
    assert "reading=published" in capsys.readouterr().out
    names = ("score_alpha", "score_gate", "score_rate", "group_size", "state_key")
    assert [found[name] for name in names] == [50.0, "score", "counts", 8, "observation"]
    graded = config("graded", "--set", "eval_episodes=32", "reading=published", "score_alpha=1")
    assert (graded["score_alpha"], graded["score_gate"]) == (1.0, "score"), "a key that is set takes precedence"


def test_local_means_no_actors_and_the_torch_engine(agents, tmp_path) -> None:
    assert main(["--local", "--iterations", "1", "--output", str(tmp_path / "run"), *KEYS]) == 0
    settings = agents[0].settings
    assert (settings.num_env_runners, settings.num_learners, settings.engine) == (0, 0, "torch")


def test_local_shows_the_traceback(agents, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(CoinAgent, "fail_at", 1)
    assert main(["--local", "--iterations", "1", "--output", str(tmp_path / "run"), *KEYS]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_output_has_a_name_of_its_own_by_default(agents, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--iterations", "1", *KEYS]) == 0
    assert main(["--iterations", "1", *KEYS]) == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(names) == 2 and all(name.startswith("guess_numbers-grpo-2") for name in names)


def test_the_best_checkpoint_is_kept_beside_the_newest(agents, tmp_path, monkeypatch) -> None:
    # Iteration 2 has the best evaluation, and the checkpoint interval skips it.
    rates = {0: 0.9, 2: 0.6, 4: 0.5, 6: 0.6, 8: 0.3}

    def evaluate(self, **_):
        return [coin_episode(n < 10 * rates[self.iteration]) for n in range(10)]

    monkeypatch.setattr(CoinAgent, "evaluate_policy", evaluate)
    keys = ["eval_interval=2", "checkpoint_interval=3", "keep_checkpoints=1"]
    out = tmp_path / "best"
    assert main(["--iterations", "8", "--output", str(out), "--set", *keys]) == 0
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["000002", "000008"]
    assert summary(out)["checkpoint_best"] == "checkpoints/000002"
    assert summary(out)["checkpoint"] == "checkpoints/000008"


def test_a_run_is_resolved_and_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    for name in ("resolve", "measure"):
        original = getattr(steps, name)
        monkeypatch.setattr(steps, name, lambda *given, do=original, name=name: called.append(name) or do(*given))
    flags = ["--model", str(save_chat_model(tmp_path)), "--local", "--output", str(tmp_path / "out")]
    plan = plan_new(main_parser().parse(flags))
    started = AgentConfig.from_settings(plan.settings).completed().agent
    assert called == ["resolve", "measure"] and started.to_dict() == plan.settings.to_dict()
    assert plan.settings.lengths and not (tmp_path / "out").exists()
    called.clear()
    few = ["iterations=1", "demonstrations=4", "tasks_per_iteration=2", "minibatches=1"]
    assert main(["sft", "--env", "guess_numbers", "--output", str(tmp_path / "made"), "--set", *few]) == 0
    assert called == ["resolve", "measure"] and (tmp_path / "made" / "model.safetensors").is_file()


def test_3spo_is_one_configuration_however_it_is_started(tmp_path) -> None:
    """From flags, Python, a recipe, a sweep, and the README's job command, which sets a recipe."""
    algorithm_keys = [field.name for field in fields(ALGORITHMS["3spo"].keys)]

    def planned(*flags: str):
        return plan_new(main_parser().parse([*flags, "--local", "--output", str(tmp_path / "out")])).settings

    recipe, sweep = tmp_path / "recipe.yaml", tmp_path / "sweep.yaml"
    recipe.write_text("algo: 3spo\nenv: guess_numbers\n")
    sweep.write_text("set: {algo: 3spo, env: guess_numbers, engine: torch}\nspace: {lr: [1.0e-4, 1.0e-5]}\n")
    (job,) = [line for line in (ROOT / "README.md").read_text().splitlines() if "ray job submit" in line]
    started = [
        planned("--algo", "3spo", "--env", "guess_numbers"),
        planned("--config", str(recipe)),
        planned(*job.partition(" python run.py ")[2].split()),
        resolve(AgentConfig().environment("guess_numbers").training(algo="3spo").local().agent),
        *resolve_trials(load_sweep(sweep), str(sweep)).values(),
    ]
    first, *others = [[getattr(settings, name) for name in ["algo", *algorithm_keys]] for settings in started]
    assert all(other == first for other in others) and started[0].reading == "learned"
    assert started[2].env == "alfworld"
