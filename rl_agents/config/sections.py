"""The keys of what runs, plays and reports, each with its type, default, range, meaning and needs.

Keys are flat (``--set lr=1e-4``); an environment's own keys are written ``env.KEY``. The help text is what
``run.py list --keys`` and the documentation print. The keys of learning are in `rl_agents.config.learning`. Keys
that only one algorithm reads are declared in its module (`rl_agents.algorithms`), whose recipe's ``keys`` names all
that it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rl_agents.config.options import key
from rl_agents.plugins import ASKED


@dataclass
class RunKeys:
    """What runs."""

    algo: str = key("grpo", "algorithm, see `run.py list`")
    env: str = key("guess_numbers", "environment, see `run.py list`")
    plugins: list[str] = key(ASKED, "modules or files of your own that register algorithms, environments, rewards")
    env_options: dict[str, Any] = key({}, "the environment's own keys, written env.KEY")
    seed: int = key(
        0, "seed of the run; every episode's stream derives from (seed, iteration, group, member)",
        at_least=0, at_most=2**32 - 1,
    )  # fmt: skip
    iterations: int = key(50, "training iterations", at_least=1, at_most=1_000_000_000)


@dataclass
class ModelKeys:
    """The policy."""

    model: str = key(
        "starter",
        "model folder, a public NAME[@REVISION] (docs/reference/models.md), or `starter`: the environment's small one",
    )
    starter_iterations: int = key(
        0, "iterations of imitation that make the starter; fewer: a weaker beginner; 0: the environment's own number",
        at_least=0, at_most=1_000_000_000, needs="model=starter",
    )  # fmt: skip
    dtype: Literal["float32", "bfloat16"] = key(
        "float32", "of engines, activations and frozen weights; weights that are trained are always kept in float32"
    )
    lora_rank: int = key(0, "rank of LoRA adapters on all linear layers; 0 trains all weights", at_least=0)
    lora_alpha: float = key(16.0, "LoRA scale (alpha / rank multiplies the adapter)", above=0, needs="lora_rank")
    activation_checkpointing: Literal["none", "selective", "full"] = key(
        "none",
        "activations that the backward pass recomputes instead of storing: `full`, all within a layer; `selective`, "
        "all except matrix products and attention",
    )


@dataclass
class RolloutKeys:
    """How episodes are played."""

    tasks_per_iteration: int = key(16, "task instances (groups) per iteration", at_least=1)
    group_size: int = key(8, "rollouts of one task per iteration; searches: of one state at most (G_max)", at_least=1)
    max_turns: int = key(0, "turn limit of an episode, the environment's too; 0 takes its default", at_least=0)
    max_response_tokens: int = key(
        32, "sampled tokens per turn at most; not set: the starter's, or measured for other models", at_least=1
    )
    max_model_len: int = key(
        512,
        "context length: prompt and response tokens at most; not set: the starter's, or measured for other models",
        at_least=2,
    )
    max_observation_characters: int = key(
        32_000, "of an observation; a longer one keeps head and tail. 0: never cut", at_least=0
    )
    temperature: float = key(1.0, "sampling temperature; the learner scores tokens at the same one", at_least=0)
    top_p: float = key(1.0, "nucleus mass", above=0, at_most=1)
    context: str = key("append", "`append`: the dialogue grows; `window(n)`: rebuilt from the last n steps")
    tool_parser: str = key(
        "",
        "who reads the model's tool calls (docs/reference/models.md); not set: found from tokenizer and chat template",
    )
    reasoning_parser: str = key(
        "",
        "who reads the model's thoughts (docs/reference/models.md); not set: found from tokenizer and chat template",
    )
    template_date: str = key(
        "", "date (YYYY-MM-DD) for chat templates that write one; not set: the day on which the run begins"
    )
    prompting: Literal["direct", "react", "reflexion"] = key(
        "direct", "`react`: thoughts before actions; `reflexion`: further attempts with notes on the failed ones"
    )
    prompting_shots: int = key(0, "solved examples before the task", at_least=0, needs="prompting=react|reflexion")
    prompting_trials: int = key(3, "attempts at a task", at_least=1, needs="prompting=reflexion")
    env_timeout_s: float = key(
        60.0, "seconds that one reset or step of an environment may take; 0 is no limit", at_least=0
    )
    env_start_timeout_s: float = key(
        1800.0, "seconds that making an environment may take, with what it loads; 0 is no limit", at_least=0
    )
    env_blocking: Literal["auto", "inline", "thread", "process"] = key(
        "auto",
        "where environments are called: in the runner's loop, in threads or in processes; `auto` takes what the "
        "environment declares, else the loop",
    )
    env_concurrency: int = key(
        0, "environments alive at once in one runner; 0: all (inline), 256 (threads), 8 or a core each (processes)",
        at_least=0,
    )  # fmt: skip
    max_failed_share: float = key(
        0.5,
        "share of episodes that environment or judge broke, over three iterations, beyond which a run ends",
        at_least=0,
        at_most=1,
    )
    num_env_runners: int = key(1, "env runner actors; each plays many episodes at once", at_least=0)
    sample_timeout_s: float = key(
        600.0,
        "seconds that one round of rollouts may take before a runner is replaced",
        above=0,
        needs="num_env_runners",
    )


@dataclass
class PoolKeys:
    """Learning from recorded sessions."""

    pool: str = key("", "pool (a file, or a run's folder) whose sessions are learned from; nobody plays for training")


@dataclass
class TruncationKeys:
    """Truncation (T3), in training only."""

    truncation: str = key(
        "none",
        "none, t3, similarity, random or a plugin's: stop episodes whose belief no longer moves, by a progress rule, "
        "repeated questions, or a coin (control)",
    )
    truncation_window: int = key(
        0, "k, steps without progress that fire it; 0 takes the environment's", at_least=0, needs="truncation=t3"
    )
    truncation_stall: Literal["consecutive", "cumulative"] = key(
        "consecutive",
        "progress resets the count (paper), or not (released CircuitDecoding)",
        needs="truncation=t3",
    )
    truncation_after: Literal["force_answer", "zero", "keep_prefix"] = key(
        "force_answer",
        "one more turn for an answer; or stop with return 0; or stop and keep the rewards so far",
        needs="truncation!=none",
    )
    truncation_similarity: float = key(
        0.93, "alpha, cosine with an earlier question above which it fires", at_least=-1, at_most=1,
        needs="truncation=similarity",
    )  # fmt: skip
    truncation_embedder: str = key(
        "ngrams", "`ngrams`, or a sentence-transformers model folder", needs="truncation=similarity"
    )
    truncation_beta: float = key(
        0.1, "probability of firing at each step", at_least=0, at_most=1, needs="truncation=random"
    )
    truncation_min_turns: int = key(0, "never truncate before this many turns", at_least=0, needs="truncation!=none")


#: What gives the judge of progressive reward shaping something to do, and what a model server.
JUDGED = ("reward=prs", "prs_form=long|general")
JUDGE_SERVER = (*JUDGED, "judge!=rule")


@dataclass
class RewardKeys:
    """What an episode earns."""

    reward: str = key("environment", "environment, prs (progressive reward shaping) or a plugin's")
    prs_form: Literal["short", "long", "general"] = key(
        "short",
        "`short`: answers of a few words; `long`: the judge comes before them; `general`: sums of sigmoids",
        needs="reward=prs",
    )
    prs_tags: list[str] = key(
        ["think", "answer"],
        "tags of the prompt that an episode must hold, opened and closed, for the format reward",
        needs="reward=prs",
    )
    prs_require_tool_call: bool = key(False, "an answer without any tool call counts as unparsable", needs="reward=prs")
    prs_thresholds: list[float] = key(
        [1.0, 1.0],
        "what process + format, then the judge, must reach for the next stage to count",
        needs=("reward=prs", "prs_form=general"),
    )
    judge: str = key(
        "rule",
        "who judges answers: `rule` (docs/algorithms/prs.md), `openai`, a model behind that API, or a plugin's",
        needs=JUDGED,
    )
    judge_url: str = key("", "address of the server, such as http://localhost:8000/v1", needs=JUDGE_SERVER)
    judge_model: str = key("", "the model's name there", needs=JUDGE_SERVER)
    judge_key_env: str = key("", "environment variable that holds the API key; empty for none", needs=JUDGE_SERVER)
    judge_timeout_s: float = key(60.0, "seconds that one request may take", above=0, needs=JUDGE_SERVER)
    judge_retries: int = key(
        2, "further attempts after a timeout, a lost connection, or HTTP 429 or 5xx", at_least=0, needs=JUDGE_SERVER
    )
    judge_concurrency: int = key(
        16, "requests at the same time; the server's rate limits are honored besides", at_least=1, at_most=4096,
        needs=JUDGE_SERVER,
    )  # fmt: skip


@dataclass
class EngineKeys:
    """What samples tokens."""

    engine: Literal["auto", "vllm", "torch"] = key(
        "auto", "`auto`: vLLM; on CPUs the one that is cheaper for the model (docs/how-to/scale.md)"
    )
    engine_mode: Literal["inprocess", "async"] = key(
        "inprocess", "vLLM in its actor's process, or AsyncLLM (GPUs)", needs="engine!=torch"
    )
    engine_quantization: Literal["none", "fp8"] = key(
        "none", "vLLM samples with weights and activations in FP8, quantized again at each change of weights",
        needs="engine!=torch",
    )  # fmt: skip
    placement: Literal["separate", "colocate"] = key(
        "separate",
        "engines in actors of their own, or `colocate`: one in each env runner's process (CPUs, docs/how-to/scale.md)",
    )
    num_engines: int = key(1, "engine actors", at_least=1)
    tensor_parallel: int = key(1, "GPUs per engine", at_least=1, needs="engine_mode=async")
    kv_cache_gb: float = key(
        0.0,
        "KV cache of one vLLM engine in GiB; 0: on GPUs what they have left; on CPUs 0.5, or what one context needs",
        at_least=0,
        needs="engine!=torch",
    )
    gpus_per_engine: float = key(0.0, "GPUs of one engine actor; 0: tensor_parallel where there are any", at_least=0)
    weight_transfer: Literal["auto", "object_store", "nccl", "ipc"] = key(
        "auto",
        "how new weights reach vLLM: Ray's object store, `nccl` between GPUs, `ipc` on one GPU",
    )
    engine_sleep: int = key(
        0, "while learners work on the same GPU, engines free it: 1 keeps weights in CPU memory, 2 nothing; 0: no",
        at_least=0, at_most=2, needs="engine!=torch",
    )  # fmt: skip
    engine_timeout_s: float = key(120.0, "seconds without an answer before an engine is replaced", above=0)
    weight_switch: Literal["wait", "keep"] = key(
        "wait", "new weights: `wait` until running calls end, holding new ones back; `keep`: inside responses, at once"
    )
    rollout_nodes: str = key("", "Ray resource of the nodes where engines and env runners go; empty: anywhere")


@dataclass
class ReportKeys:
    """Evaluations, checkpoints, records."""

    eval_interval: int = key(
        10, "iterations between evaluations on the test tasks; 0 evaluates at start and end", at_least=0
    )
    eval_episodes: int = key(128, "episodes of an evaluation; 0: no evaluations", at_least=0)
    eval_temperature: float = key(1.0, "sampling temperature of evaluations", at_least=0)
    checkpoint_interval: int = key(
        1, "iterations between checkpoints; 0 keeps only the last; raise it for big models", at_least=0
    )
    keep_checkpoints: int = key(3, "checkpoints kept; 0 keeps all", at_least=0)
    keep_best: bool = key(True, "keep the checkpoint of the best evaluation as well")
    save_pool: bool = key(
        True, "write every step to pool.sqlite (docs/reference/pool.md); a resumed run samples none of them again"
    )
    collapse_monitor: Literal["warn", "stop", "restore", "off"] = key(
        "warn",
        "the policy's success falls below its start by more than its noise: `warn` says so; `stop` ends the run; "
        "`restore` goes on from the best checkpoint, and ends the run at the second time",
    )
    collapse_monitor_z: float = key(
        3.5, "combined standard errors that are noise to the monitor", above=0, needs="collapse_monitor!=off"
    )
    trackers: list[str] = key(
        [], "told the same as TensorBoard: wandb, mlflow, trackio, or one of a plugin (docs/how-to/inspect-a-run.md)"
    )
    tracker_project: str = key("rl_agents", "project or experiment of the trackers", needs="trackers")
    save_trajectories: int = key(16, "episodes of each iteration written to trajectories/", at_least=0)


@dataclass
class AsyncKeys:
    """Sampling while learning: how far the sampling weights may be behind (docs/explanation/staleness.md)."""

    async_level: int = key(
        0,
        "k: iteration i is sampled by the weights of iteration i-k, while the learner makes those in between; same "
        "results whatever the timing",
        at_least=0,
    )
    stream: bool = key(False, "sample without a pause, with the newest weights at hand, up to `max_staleness`")
    max_staleness: int = key(
        2, "iterations that a group's oldest step may lie behind the weights that learn from it", at_least=1,
        needs="stream",
    )  # fmt: skip
