"""Shared by all tests: one Ray session, and a tiny model with tied embeddings and its tokenizer.

Helpers that several folders import are ``tests/NAME.py`` or ``FOLDER.NAME``: this folder is on the path (pyproject).
"""

import gc
import os

# Before torch or Ray are imported: spinning threads on a busy small machine are 2-6 times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# Ray's processes import for a minute on a busy machine; its own limits are 5 to 60 seconds.
os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "180")
os.environ.setdefault("RAY_gcs_server_request_timeout_seconds", "180")
os.environ.setdefault("RAY_gcs_rpc_server_connect_timeout_s", "60")
os.environ.setdefault("RAY_py_gcs_connect_timeout_s", "180")
os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")
os.environ.setdefault("RAY_raylet_client_num_connect_attempts", "100")  # of a second each
os.environ.setdefault("RAY_agent_register_timeout_ms", "180000")
os.environ.setdefault("RAY_worker_register_timeout_seconds", "180")
os.environ.setdefault("RAY_DASHBOARD_STARTUP_TIMEOUT_S", "180")
os.environ.setdefault("RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT", "120")
# Ray starts its workers at niceness 15, with which each would get 3 % of a core next to the other test process.
os.environ.setdefault("RAY_worker_niceness", "0")
# Ray looks for new log files ten times a second, for every cluster: 2 % of all that the tests compute.
os.environ.setdefault("RAY_LOG_MONITOR_MANY_FILES_THRESHOLD", "0")
os.environ.setdefault("LOG_NAME_UPDATE_INTERVAL_S", "2")
# A stopping node has nothing to hand over, but would wait for 30 seconds.
os.environ.setdefault("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "0")

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import side_by_side
from judge_server import vllm_judge
from side_by_side import pytest_xdist_make_scheduler  # noqa: F401  (a hook)

from rl_agents.startup import collect_less_often

with contextlib.suppress(ImportError):
    import setuptools  # noqa: F401  (vLLM does so late; on Python 3.11 that fails if pip was imported first)

#: Words of the tiny tokenizer, and so the tiny model's vocabulary.
VOCABULARY = 200


def pytest_configure(config: pytest.Config) -> None:
    collect_less_often()
    config.addinivalue_line("markers", "ray: starts Ray or vLLM")
    config.addinivalue_line("markers", "rllib: runs RLlib's algorithm in the test's own process")
    config.addinivalue_line("markers", "servers: starts small servers of its own, and waits for those that hang")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run coroutine tests on asyncio."""
    return "asyncio"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "ray_session" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.ray)
        if "beginner_model_dir" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.rllib)
    side_by_side.sort_items(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    side_by_side.wait_for_the_first(session.config)


def pytest_collection_finish(session: pytest.Session) -> None:
    side_by_side.say_collected(session.config)
    gc.freeze()  # what libraries and tests have defined stays: no need to walk through it again and again


def pytest_sessionfinish(session: pytest.Session) -> None:
    side_by_side.say_collected(session.config, done=False)


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """One local Ray for the whole test run, with four logical CPUs."""
    import ray

    start_ray()
    yield
    ray.shutdown()


def start_ray(attempts: int = 2) -> None:
    """Start Ray; again if it fails, as the 30 seconds that Ray's node waits for its raylet cannot be set."""
    import ray

    for left in reversed(range(attempts)):
        try:
            ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
            return
        except Exception as error:
            ray.shutdown()
            if not left:
                raise pytest.fail.Exception(
                    f"Ray does not start: {type(error).__name__}: {error}", pytrace=False
                ) from None


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of about 0.1 M parameters whose distributions are far from flat."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    folder = tmp_path_factory.mktemp("tiny-qwen2")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,  # heads of 32: vLLM's CPU attention knows no smaller ones
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    _save_tokenizer(folder)
    return folder


def _save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {f"w{i}": i for i in range(3, VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    fast.save_pretrained(folder)


@pytest.fixture(scope="session")
def beginner_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A guess_numbers starter trained for a few seconds: most of its actions can be parsed."""

    def build(folder: Path) -> None:
        from rl_agents.trainer.algorithm import AgentAlgorithm
        from rl_agents.trainer.warm_start import build_starter

        build_starter(AgentAlgorithm.from_settings, "guess_numbers", folder, set={"iterations": 12})

    return side_by_side.made_once(tmp_path_factory, "beginner", build)


@pytest.fixture(scope="session")
def wide_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wide enough that sums depend on which requests share a batch, as those of real models do."""
    import torch
    from chat_tokenizers import qwen
    from transformers import Qwen2Config, Qwen2ForCausalLM

    folder = tmp_path_factory.mktemp("wide")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(qwen()), hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=4, tie_word_embeddings=True, initializer_range=0.05,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    qwen().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def smollm2_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M-Instruct, a pretrained model; checked by the command that converts it."""

    def convert(folder: Path) -> None:
        from rl_agents.cli import main

        assert main(["model", "smollm2", "--output", str(folder)]) == 0

    return side_by_side.made_once(tmp_path_factory, "smollm2", convert)


@pytest.fixture(scope="session")
def judge_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the judge's ``model`` is as soon as it runs."""
    return tmp_path_factory.mktemp("judge")


@pytest.fixture(scope="session")
def judge_that_says_yes(judge_dir: Path) -> Iterator[str]:
    """The URL of a real vLLM server whose model ``judge`` says Yes to everything."""
    with vllm_judge("Yes", judge_dir) as url:
        yield url
