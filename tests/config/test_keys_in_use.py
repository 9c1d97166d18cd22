"""Every key of a run is set by a recipe, a sweep, a benchmark or a starter, or there is a reason for it."""

import re
from pathlib import Path

from rl_agents.algorithms import KEYS

ROOT = Path(__file__).parents[2]
FILES = [
    *(ROOT / "tune_configs").rglob("*.yaml"),
    *(ROOT / "benchmarks").rglob("*.py"),
    *(ROOT / "rl_agents" / "envs").rglob("demonstrations.py"),
    ROOT / "rl_agents" / "envs" / "starters.py",
]
SET = re.compile(r"^ *(\w+): |^(\w+):$|\b(\w+)=|[\"'](\w+)[\"']", re.MULTILINE)
CLUSTER = "placement, sizes and patience depend on the machine, which no recipe knows"
SERVER = "where a judge's server is depends on the user"
REFERENCE = "what another library or paper does, for comparisons with it"
ABLATION = "arm of an ablation of the method's own paper"
PROMPTING = "baselines without training; `run.py eval --compare` and docs/reference/cli.md"
CONTROL = "control for a T3 result: another rule, or another form of the same"
SEARCH = "choices of the search"
#: Keys that nothing in the repository sets, and why they are there.
REASONS = {
    "tasks_changed": "for a resumed run whose tasks have changed",
    "trackers": "accounts and servers of the user's",
    "tracker_project": "the user's name for it",
    "vspo_scale": "for rewards of another span than the paper's; its form is the default",
    "reward_timeout_s": "how long a reward function may take is the user's to say",
    "max_failed_share": "how much of an environment may fail is the user's to say",
    "task_uniform_share": "how often solved tasks are visited again is the user's to say",
    "epochs": "the papers take one pass; several are a user's choice",
    "cliprange_value": "range of the value loss, to be widened with other reward scales",
    "prompting": PROMPTING,
    **dict.fromkeys(["judge_url", "judge_model", "judge_key_env", "judge_timeout_s", "judge_concurrency"], SERVER),
    **dict.fromkeys(
        ["env_timeout_s", "env_start_timeout_s", "env_blocking", "env_concurrency", "learner_timeout_s",
         "engine_timeout_s", "rollout_nodes", "learner_nodes"],
        CLUSTER,
    ),
    **dict.fromkeys(
        ["truncation_stall", "truncation_similarity", "truncation_embedder", "truncation_beta",
         "truncation_min_turns"], CONTROL,
    ),
    **dict.fromkeys(["prs_require_tool_call", "prs_thresholds"], "forms of the paper's reward"),
    **dict.fromkeys(
        ["advantage_std", "whiten", "dual_clip", "kl_estimator", "kl_in_reward_coef", "bootstrap_on_truncation"],
        REFERENCE,
    ),
    **dict.fromkeys(["pool", "pool_min_return"], "which sessions there are depends on the user"),
    **dict.fromkeys(
        ["demonstration_columns", "expert_data", "expert_columns", "expert_dialogues", "ce_coef", "ce_decay"],
        "which dialogues there are depends on the user",
    ),
    **dict.fromkeys(["teacher_url", "teacher_model", "teacher_key_env"], "where a teacher's server is varies"),
    "max_observation_characters": "for environments whose answers are long, and contexts that hold more or less",
    "max_summary_tokens": "how long a summary must be depends on the task",
    "weight_switch": "how long responses run depends on the task",
    **dict.fromkeys(["tool_parser", "reasoning_parser"], "found from the model's chat template"),
    "template_date": "another day than the one on which the run begins",
    **dict.fromkeys(
        ["gigpo_omega", "state_decay", "success_replay_weight", "search_backtrack", "score_gate"], ABLATION,
    ),
    **dict.fromkeys(
        ["branching", "novelty_decay"], SEARCH,
    ),
}  # fmt: skip


def test_every_key_is_in_use_or_has_a_reason() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in FILES)
    used = {name for names in SET.findall(text) for name in names} & KEYS.keys()
    assert not KEYS.keys() - used - REASONS.keys(), "set by nothing, and without a reason"
    assert not REASONS.keys() & used, "in use: needs no reason"
    assert not REASONS.keys() - KEYS.keys(), "no such key"


def test_the_number_of_keys_is_known() -> None:
    """Raise it deliberately: each key is one more thing to understand, and to test beside all others."""
    assert len(KEYS) == 182
