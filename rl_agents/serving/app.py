"""The Ray Serve application: ``serve run rl_agents.serving.app:build checkpoint=runs/NAME``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ray import serve
from ray.serve.config import AutoscalingConfig, BackpressureConfig
from ray.serve.handle import DeploymentHandle

from rl_agents.config import Settings
from rl_agents.inference.base import EngineSettings
from rl_agents.inference.engines import resolve_engine, run_engine
from rl_agents.serving.options import ServingOptions
from rl_agents.serving.policy import PolicyReplica, RemotePolicy
from rl_agents.serving.service import Service
from rl_agents.serving.source import Checkpoint, find_checkpoint, present, served_settings
from rl_agents.web.security import Keys

#: Requests at the ingress in addition to those for the engines: sessions, probes, the page.
OTHER_REQUESTS = 64


class Ingress:
    """The ingress deployment; Serve takes the application from it."""

    def __init__(
        self, options: ServingOptions, settings: Settings, checkpoint: Checkpoint, keys: Keys,
        policy: DeploymentHandle, kind: str,
    ) -> None:  # fmt: skip
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        checkpoint, self._keys = present(checkpoint, options.checkpoint), keys
        self._service = Service(options, settings, checkpoint, RemotePolicy(policy), kind)

    def __serve_build_asgi_app__(self) -> Any:
        return self._service.app(self._keys)


def build(args: Mapping[str, Any]) -> serve.Application:
    """Build the application from keys of the server (`rl_agents.serving.options`) and of the run, as text or values.

    Raises:
        InputError: unknown key, no such checkpoint, an engine that cannot run here, a missing API key.
    """
    options, run_keys = ServingOptions.read(args)
    keys = Keys.from_environment(options.api_key_env, options.admin_key_env)
    checkpoint = find_checkpoint(options.checkpoint)
    settings = served_settings(checkpoint, {**run_keys, "engine": options.engine})
    engine = engine_settings(options, settings, checkpoint)
    replica = serve.deployment(PolicyReplica).options(
        name="Policy",
        max_ongoing_requests=options.max_ongoing_requests,
        max_queued_requests=options.max_queued_requests,
        graceful_shutdown_timeout_s=options.request_timeout_s,
        ray_actor_options={"num_cpus": engine.threads, "num_gpus": _gpus(settings)},
        **_replicas(options),
    )
    capacity = options.max_replicas * options.max_ongoing_requests + options.max_queued_requests
    ingress = serve.deployment(serve.ingress()(Ingress)).options(
        name="Gateway",
        max_ongoing_requests=capacity + options.max_sessions + OTHER_REQUESTS,
        max_queued_requests=options.max_queued_requests,
        backpressure_config=BackpressureConfig(status_code=429, retry_after_s=1),
        graceful_shutdown_timeout_s=options.request_timeout_s,
        ray_actor_options={"num_cpus": 0},
    )
    policy = replica.bind(engine, options, checkpoint)
    return ingress.bind(options, settings, checkpoint, keys, policy, engine.kind)


def engine_settings(options: ServingOptions, settings: Settings, checkpoint: Checkpoint) -> EngineSettings:
    """Return the settings of each replica's engine.

    Raises:
        InputError: the engine cannot run here.
    """
    kind, _ = resolve_engine(settings.engine)
    engine = run_engine(settings, str(checkpoint.hf_dir), kind)
    # `PolicyReplica.load` itself waits for running answers; those that take longer continue under the new weights.
    return replace(engine, max_batch=options.max_ongoing_requests, weight_switch="keep", guided=True)


def _replicas(options: ServingOptions) -> dict[str, Any]:
    if options.min_replicas == options.max_replicas:
        return {"num_replicas": options.min_replicas}
    target = options.target_ongoing_requests or max(1, options.max_ongoing_requests // 2)
    replicas = {"min_replicas": options.min_replicas, "max_replicas": options.max_replicas}
    return {"autoscaling_config": AutoscalingConfig(**replicas, target_ongoing_requests=target)}


def _gpus(settings: Settings) -> float:
    """Return the GPUs of a replica, as for engines of a run: ``tensor_parallel`` if torch sees any."""
    import torch

    return settings.gpus_per_engine or (float(settings.tensor_parallel) if torch.cuda.is_available() else 0.0)
