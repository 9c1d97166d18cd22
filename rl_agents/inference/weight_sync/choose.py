"""Which way weights travel: what the key ``weight_transfer`` means in a run, and which combinations are refused."""

from __future__ import annotations

from dataclasses import dataclass

from rl_agents.config import Settings
from rl_agents.errors import InputError


@dataclass(frozen=True)
class Choice:
    """How weights travel, why, and whether a person asked for it: then there is no other way to fall back on."""

    way: str
    reason: str
    asked: bool = False


def choose_transfer(settings: Settings, kind: str, gpus: bool) -> Choice:
    """Say how weights get from the learners to the engines.

    Args:
        settings: of the run.
        kind: of the engines, ``torch`` or ``vllm``.
        gpus: engines for which nobody said how many GPUs they have get ``tensor_parallel``.

    Raises:
        InputError: what was asked for cannot work with the other keys.
    """
    asked = settings.weight_transfer
    per_engine = settings.gpus_per_engine or (settings.tensor_parallel if gpus else 0)
    obstacles = {way: _obstacle(way, settings, kind, per_engine) for way in ("gloo", "nccl", "ipc")}
    if asked in obstacles and (why := obstacles[asked]):
        raise InputError(f"weight_transfer={asked}: {why}")
    if asked != "auto":
        return Choice(asked, "as asked", asked=True)
    if not obstacles["ipc"]:
        return Choice("ipc", "learner and engine share a GPU")
    if not obstacles["nccl"]:
        return Choice("nccl", "learners and engines have GPUs of their own")
    return Choice("object_store", obstacles["nccl"])


def check_sleep(settings: Settings, kind: str, gpus: bool) -> None:
    """Refuse engines that shall sleep and cannot.

    Raises:
        InputError: why not.
    """
    why = ""
    if kind != "vllm" or settings.num_env_runners == 0:
        why = "only vLLM engines in actors of their own sleep"
    elif not (gpus or settings.gpus_per_engine):
        why = "vLLM sleeps on GPUs only; its CPU build has no sleep mode"
    elif settings.lag or settings.stream:
        why = "with lag or stream engines sample while the learners learn, and cannot sleep meanwhile"
    if settings.engine_sleep and why:
        raise InputError(f"engine_sleep={settings.engine_sleep}: {why}")


def _obstacle(way: str, settings: Settings, kind: str, per_engine: float) -> str:
    """Say why weights cannot travel this way; nothing when they can."""
    if kind != "vllm":
        return "the torch engine takes weights from the object store only; set engine=vllm, or leave the key out"
    if settings.num_env_runners == 0:
        return "with num_env_runners=0 the engine is in the driver's process and takes its weights there"
    if way == "gloo":
        return ""
    if not per_engine or not settings.gpus_per_learner:
        return "learners and engines are not both on GPUs (gpus_per_learner, gpus_per_engine)"
    if settings.lag or settings.stream:
        return (
            "engines sample with older weights than the learners hold (lag, stream); object_store and gloo keep those"
        )
    if way == "ipc" and settings.engine_mode == "async":
        return "GPU memory handles do not cross vLLM's own processes; set engine_mode=inprocess"
    if settings.learner_sharding == "fsdp":
        return "sharded learners gather whole weights for object_store and gloo only: a lost engine must not hang them"
    shared = _share_a_gpu(settings, per_engine)
    if way == "nccl":
        return "learner and engine share a GPU, and NCCL cannot put two ranks on one" if shared else ""
    return "" if shared else "it needs one learner and one engine on one GPU (gpus_per_learner + gpus_per_engine <= 1)"


def _share_a_gpu(settings: Settings, per_engine: float) -> bool:
    together = settings.gpus_per_learner + per_engine
    one_each = max(settings.num_learners, 1) == settings.num_engines == settings.tensor_parallel == 1
    return one_each and together <= 1
