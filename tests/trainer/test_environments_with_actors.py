"""Several environments with env runners of their own."""

from pathlib import Path

from rl_agents.trainer.algorithm import AgentConfig


def test_draws_do_not_depend_on_the_number_of_runners(ray_session: None, wide_model_dir: Path) -> None:
    guess = {"env": "guess_numbers", "env.prompt": "compact", "max_turns": 2, "max_response_tokens": 4}
    keys = {
        "environments": [{**guess, "env": "circuit_decoding", "weight": 3}, guess], "model": str(wide_model_dir),
        "algo": "grpo", "tasks_per_iteration": 4, "group_size": 4, "max_response_tokens": 8, "max_model_len": 600,
        "engine": "torch", "iterations": 2, "eval_episodes": 0,
    }  # fmt: skip
    found = []
    for each in (
        AgentConfig().training(**keys).local(),
        AgentConfig().training(**keys, num_env_runners=2),
    ):
        algo = each.build_algo()
        for _ in range(2):
            algo.train()
        found.append(sorted((t.task_id, t.group_id, t.seed) for t in algo.last_trajectories))
        algo.stop()
    assert found[0] == found[1] and len(found[0]) == 16
