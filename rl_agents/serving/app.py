"""The Ray Serve application: ``serve run rl_agents.serving.app:build checkpoint=runs/NAME``."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.config import AutoscalingConfig, BackpressureConfig
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from rl_agents.config import Settings
from rl_agents.errors import InputError
from rl_agents.inference.base import EngineError, EngineSettings, Sampling
from rl_agents.inference.select import resolve_engine, run_engine
from rl_agents.serving.api import make_api
from rl_agents.serving.metrics import EngineMeter
from rl_agents.serving.options import ServingOptions
from rl_agents.serving.policy import Piece, Policy, Target
from rl_agents.serving.service import Service
from rl_agents.serving.source import Checkpoint, find_adapters, find_checkpoint, served_settings
from rl_agents.web.errors import overloaded
from rl_agents.web.security import Keys

#: Requests that the gateway holds beside those for the engines: sessions, probes, the page.
OTHER_REQUESTS = 64
#: Guided decoding needs to know the tokens' texts; one backend, since vLLM's engine has the first request's for all.
GUIDED = {"skip_tokenizer_init": False, "structured_outputs_config": {"backend": "xgrammar"}}
#: Seconds that all replicas together may take for new weights.
LOAD_S = 600.0
#: Seconds that they may take to say what they serve.
SERVED_S = 4.0


class RemotePolicy:
    """The replicas behind a Serve handle, see `rl_agents.serving.policy.PolicyClient`."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle
        self._stream = handle.options(stream=True)

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, target: Target) -> Piece:
        """Return a whole answer.

        Raises:
            ApiError: 429 when the queue is full.
            EngineError: the replica's engine failed, or the replica died.
        """
        with _serve_errors():
            piece: Piece = await self._handle.generate.remote(prompt_ids, sampling, target)
        return piece

    async def stream(
        self, prompt_ids: Sequence[int], sampling: Sampling, target: Target
    ) -> AsyncGenerator[Piece, None]:
        """Yield an answer piece by piece; see `generate`."""
        pieces: Any = self._stream.stream.remote(prompt_ids, sampling, target)
        try:
            with _serve_errors():
                async for piece in pieces:
                    yield piece
        finally:
            pieces.cancel()

    async def load(self, target: Target) -> None:
        """Have all replicas take new weights at the same time; those that start later learn from requests.

        Raises:
            InputError: a replica refuses them.
            EngineError: a replica died, or did not take them within `LOAD_S`.
        """
        with _serve_errors():
            await self._handle.broadcast("load", target).results_async(timeout_s=LOAD_S)

    async def served(self) -> Target:
        """Return the newest that a replica serves. Busy replicas answer, too: this waits in no queue.

        Raises:
            EngineError: no replica runs, or none answers within `SERVED_S`.
        """
        with _serve_errors():
            targets: list[Target] = await self._handle.broadcast("served").results_async(timeout_s=SERVED_S)
        if not targets:
            raise EngineError("no engine replica is running")
        return max(targets, key=lambda target: target.number)


@contextmanager
def _serve_errors() -> Iterator[None]:
    """Give Serve's errors our names."""
    try:
        yield
    except BackPressureError:
        raise overloaded() from None
    except RayTaskError as error:
        raise error.cause from None
    except (RayActorError, DeploymentUnavailableError) as error:
        raise EngineError(f"an engine replica is gone: {type(error).__name__}") from None
    except TimeoutError:
        raise EngineError("the engine replicas did not answer in time") from None


class Gateway:
    """The ingress deployment; Serve asks it for its application once it is built."""

    def __init__(
        self,
        options: ServingOptions,
        settings: Settings,
        checkpoint: Checkpoint,
        keys: Keys,
        policy: DeploymentHandle,
        engine: EngineSettings,
    ) -> None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        self._keys, self._max_body_bytes = keys, options.max_body_bytes
        client = RemotePolicy(policy)
        self._service = Service(options, settings, checkpoint, client, engine.kind, engine.adapters)

    def __serve_build_asgi_app__(self) -> Any:
        """Return the application."""
        return make_api(self._service, self._keys, self._max_body_bytes)


class Replica(Policy):
    """A policy that finds the newest checkpoint when it starts: the one that it was configured with may be pruned."""

    def __init__(self, settings: EngineSettings, options: ServingOptions, checkpoint: Checkpoint) -> None:
        if options.follow or not checkpoint.hf_dir.is_dir():
            checkpoint = find_checkpoint(options.checkpoint)
        own = replace(settings, model_dir=str(checkpoint.hf_dir))
        super().__init__(own, checkpoint, options.drain_s, EngineMeter())


def build(args: Mapping[str, Any]) -> serve.Application:
    """Build the application from keys (`rl_agents.serving.options` and those of the run), as text or as values.

    Raises:
        InputError: unknown key, no such checkpoint, an engine that cannot run here, a missing API key.
    """
    options, run_keys = ServingOptions.read(args)
    keys = Keys.from_environment(options.api_key_env, options.admin_key_env)
    checkpoint = find_checkpoint(options.checkpoint)
    settings = served_settings(checkpoint, {**run_keys, "engine": options.engine})
    return application(options, settings, checkpoint, keys)


def application(options: ServingOptions, settings: Settings, checkpoint: Checkpoint, keys: Keys) -> serve.Application:
    """Put the two deployments together."""
    engine = engine_settings(options, settings, checkpoint)
    replica = serve.deployment(Replica).options(
        name="Policy",
        max_ongoing_requests=options.max_ongoing_requests,
        max_queued_requests=options.max_queued_requests,
        graceful_shutdown_timeout_s=options.request_timeout_s,
        ray_actor_options={"num_cpus": engine.threads, "num_gpus": _gpus(settings)},
        **_scale(options),
    )
    capacity = options.max_replicas * options.max_ongoing_requests + options.max_queued_requests
    gateway = serve.deployment(serve.ingress()(Gateway)).options(
        name="Gateway",
        max_ongoing_requests=capacity + options.max_sessions + OTHER_REQUESTS,
        max_queued_requests=options.max_queued_requests,
        backpressure_config=BackpressureConfig(status_code=429, retry_after_s=1),
        graceful_shutdown_timeout_s=options.request_timeout_s,
        ray_actor_options={"num_cpus": 0},
    )
    return gateway.bind(options, settings, checkpoint, keys, replica.bind(engine, options, checkpoint), engine)


def engine_settings(options: ServingOptions, settings: Settings, checkpoint: Checkpoint) -> EngineSettings:
    """Return how each replica builds its engine.

    Raises:
        InputError: adapters that do not fit the checkpoint, or an engine that cannot hold any.
    """
    kind, _ = resolve_engine(settings.engine)
    if options.adapters and kind != "vllm":
        raise InputError(f"adapters={options.adapters}: the {kind} engine holds one policy; they need engine=vllm")
    if options.adapters and settings.engine_quantization != "none":
        raise InputError("adapters over a quantized base were not tried: set engine_quantization=none")
    adapters = find_adapters(options.named_adapters(), checkpoint)
    engine = run_engine(settings, str(checkpoint.hf_dir), kind)
    # `Policy.load` lets running answers end itself, for a time of its own, and then loads beside those that go on.
    vllm_args = {**engine.vllm_args, **GUIDED} if kind == "vllm" else engine.vllm_args
    return replace(
        engine, max_batch=options.max_ongoing_requests, weight_switch="keep", adapters=adapters, vllm_args=vllm_args
    )


def _scale(options: ServingOptions) -> dict[str, Any]:
    if options.min_replicas == options.max_replicas:
        return {"num_replicas": options.min_replicas}
    target = options.target_ongoing_requests or max(1, options.max_ongoing_requests // 2)
    scale = AutoscalingConfig(
        min_replicas=options.min_replicas,
        max_replicas=options.max_replicas,
        target_ongoing_requests=target,
    )
    return {"autoscaling_config": scale}


def _gpus(settings: Settings) -> float:
    """GPUs of a replica; like engines of a run: ``tensor_parallel`` where torch sees any."""
    import torch

    return settings.gpus_per_engine or (float(settings.tensor_parallel) if torch.cuda.is_available() else 0.0)
