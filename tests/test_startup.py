"""Processes start with as little CPU as they can; what engine actors import is in
``tests/inference/test_engines.py``."""

import gc
import json
import os
import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from rl_agents.startup import NEW_CONTAINERS, collect_less_often, leave_out_sklearn

ROOT = Path(__file__).parents[1]
#: Seconds of CPU for all of these lines; measured are 0.7, and importing torch alone takes more.
LIGHT_S = 2.0
LIGHT = {
    "list": 0, "list --keys": 0, "--help": 0, "--set lrr=1": 2, "--algo grop": 2, "--env alfwrold": 2,
    "--config broken.yaml": 2, "--model nowhere": 2, "--resume nowhere": 2,
}  # fmt: skip
HEAVY = "{'torch', 'ray', 'transformers', 'vllm', 'pandas', 'matplotlib'}"


def python(code: str, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH", "")])])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=env, cwd=cwd, capture_output=True, text=True, check=False
    )


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


SAY = f"""
import json, sys
from rl_agents.cli import main
for line in json.loads(sys.argv[1]):
    code = main(line.split())
    print("loaded:", line, code, sorted({HEAVY} & set(sys.modules)))
"""


def test_what_needs_no_model_is_answered_at_once(tmp_path: Path) -> None:
    """In one process: what a line loads would still be there after the next one."""
    (tmp_path / "broken.yaml").write_text("algo: [grpo\n")
    spent = LIGHT_S
    for _ in range(2):  # the first may have to compile modules
        if spent >= LIGHT_S:
            before = cpu_of_children()
            done = python(SAY, json.dumps(list(LIGHT)), cwd=tmp_path)
            spent = cpu_of_children() - before
            said = [line for line in done.stdout.splitlines() if line.startswith("loaded:")]
            assert said == [f"loaded: {line} {code} []" for line, code in LIGHT.items()], done.stderr
    assert spent < LIGHT_S


MODEL = """
import sys
from rl_agents.inference.torch_model import load_causal_lm
import torch

model = load_causal_lm(sys.argv[1], "float32")
for prompt, options in (([5, 6], {}), ([5, 6] * 4, {"prompt_lookup_num_tokens": 2})):
    options |= {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False}
    print(model.generate(torch.tensor([prompt]), **options).shape[1])
print([name for name in ("sklearn", "pandas") if name in sys.modules])
import sklearn.metrics
print(sklearn.metrics.roc_curve([0, 1], [0.2, 0.7])[1][-1])
"""


@pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn comes with the extra `similarity`")
def test_models_load_and_generate_without_scikit_learn_which_stays_importable(tiny_model_dir: Path) -> None:
    done = python(MODEL, str(tiny_model_dir))
    assert done.stdout.splitlines() == ["5", "11", "[]", "1.0"], done.stderr


def test_where_scikit_learn_is_in_use_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("sklearn")
    monkeypatch.setitem(sys.modules, "sklearn", module)
    leave_out_sklearn()
    assert sys.modules["sklearn"] is module


@pytest.mark.parametrize(("chosen", "then"), [(700, NEW_CONTAINERS), (0, 0), (50_000, 50_000)])
def test_garbage_is_looked_for_less_often_unless_somebody_chose_otherwise(chosen: int, then: int) -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(chosen, 11, 12)
        collect_less_often()
        assert gc.get_threshold()[0] == then
        assert gc.get_threshold()[1] == 11
    finally:
        gc.set_threshold(*before)


def test_a_users_own_process_stays_as_it_is_and_an_env_runner_imports_nothing_of_learners() -> None:
    """Ray passes the configuration, which names the learner; without the learner, imports take 3.1 s, else 3.8 s."""
    unwanted = {"torch.distributed.fsdp", "torch.distributed.tensor", "sympy", "vllm", "rl_agents.learner.learner"}
    done = python(
        "import gc, sys; before = gc.get_threshold(); import rl_agents; print(gc.get_threshold() == before)\n"
        "import rl_agents.rollout.env_runner, rl_agents.trainer.algorithm\n"
        f"print(sorted({unwanted} & set(sys.modules)))"
    )
    assert [done.stdout.splitlines()[0], done.stdout.splitlines()[-1]] == ["True", "[]"], done.stdout + done.stderr
