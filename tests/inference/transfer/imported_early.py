"""What the fork server imports, so that its children need not; see `engine_host`."""

import importlib
import os

from rl_agents.inference.vllm_common import prepare_environment

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
prepare_environment()
# As `quick_start_args` does it, before the sampler is imported.
type(importlib.import_module("vllm.platforms").current_platform).simple_compile_backend = "eager"
for name in (
    "vllm.model_executor.models.qwen2",
    "vllm.v1.engine.llm_engine",
    "vllm.v1.worker.cpu_model_runner",
    "vllm.v1.worker.cpu_worker",
    "rl_agents.inference.weight_receivers",
    "rl_agents.inference.vllm_engine",
):
    importlib.import_module(name)
