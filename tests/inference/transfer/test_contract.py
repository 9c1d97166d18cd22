"""One contract for every way that weights travel, on real vLLM engines: order, kills and hangs in every phase, values.

The engines' receivers take both ways here (a group, and the object store), so that all tests share two engines.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("vllm", reason="vLLM is not installed")

from inference.transfer.engine_host import HostedEngine, PipePeers, settings, start_fork_server

from rl_agents.inference.base import Completion, Sampling
from rl_agents.inference.weight_sync import links
from rl_agents.inference.weight_sync.checksums import differing
from rl_agents.inference.weight_sync.links import GlooLink, StoreLink
from rl_agents.inference.weight_sync.session import GRACE_S, Session
from rl_agents.inference.weights import PackedWeights, pack, unpack

pytestmark = pytest.mark.ray  # it starts vLLM

WAYS = ("object_store", "gloo")
PROMPT = [5, 6, 7, 8, 9, 10]
DEADLINE_S = 60.0
#: What a test takes for "it hangs"; an update takes some hundredths of a second.
HANG_S = 6.0
BUCKET = 40_000


@dataclass
class Rig:
    """Two engines, and the learner's model."""

    folder: Path
    reference: Any
    engines: dict[int, HostedEngine]
    sessions: dict[str, Session] = field(default_factory=dict)
    version: int = 0
    table: list[str] = field(default_factory=list)

    def session(self, way: str) -> Session:
        if way not in self.sessions:
            link = StoreLink() if way == "object_store" else GlooLink(bucket_bytes=BUCKET)
            self.sessions[way] = Session(PipePeers(self.engines), link)
        return self.sessions[way]

    def changed(self) -> PackedWeights:
        """Move all weights; return the new ones."""
        self.version += 1
        generator = torch.Generator().manual_seed(self.version)
        with torch.no_grad():
            for parameter in self.reference.parameters():
                parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
        return self.packed()

    def packed(self) -> PackedWeights:
        return pack(self.reference.state_dict())

    def update(self, way: str, *engines: int, timeout_s: float = DEADLINE_S) -> dict[int, Any]:
        return self.session(way).update(engines or (0, 1), self.packed(), self.version, timeout_s)

    def assert_current(self, *engines: int) -> None:
        """These engines sample with the learner's weights."""
        for engine in engines or (0, 1):
            completion = self.engines[engine].generate(PROMPT)
            assert completion.policy_version == self.version, f"engine {engine}"
            assert distance(self.reference, completion) < 1e-4, f"engine {engine}"

    def replace(self, engine: int) -> None:
        self.engines[engine] = HostedEngine(settings(self.folder, "gloo"))


@torch.no_grad()
def distance(model: Any, completion: Completion) -> float:
    logits = model(torch.tensor([PROMPT + completion.token_ids])).logits[0, len(PROMPT) - 1 : -1].float()
    expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
    return (expected - torch.tensor(completion.logprobs)).abs().max().item()


@pytest.fixture(scope="module")
def rig(tiny_model_dir: Path) -> Iterator[Rig]:
    from transformers import AutoModelForCausalLM

    start_fork_server()
    engines = {number: HostedEngine(settings(tiny_model_dir, "gloo")) for number in (0, 1)}
    reference = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32).eval()
    for engine in engines.values():
        engine.call("ping", timeout_s=240)
    rig = Rig(tiny_model_dir, reference, engines)
    yield rig
    for engine in rig.engines.values():
        engine.kill()
    print("\n".join(["", "| way | phase | failure | outcome | seconds |", "|---|---|---|---|---|", *rig.table]))


@pytest.mark.parametrize("way", WAYS)
def test_every_update_arrives_in_all_engines(rig: Rig, way: str) -> None:
    for _ in range(3):
        rig.changed()
        assert rig.update(way) == {}
        rig.assert_current()


def test_both_ways_give_the_same_engine_bit_for_bit(rig: Rig) -> None:
    rig.changed()
    assert rig.update("gloo", 0) == {} == rig.update("object_store", 1)
    one, other = (rig.engines[engine].generate(PROMPT, max_tokens=32, temperature=1.0, seed=3) for engine in (0, 1))
    assert one == other
    assert rig.engines[0].call("checksums") == rig.engines[1].call("checksums")


@pytest.mark.parametrize("way", WAYS)
def test_checksums_are_the_learners(rig: Rig, way: str) -> None:
    rig.changed()
    assert rig.update(way) == {}
    found = rig.engines[0].call("checksums")
    wrong, compared = differing(unpack(rig.packed()), "float32", found)
    assert (wrong, compared) == ([], len(found))
    older = found
    rig.changed()
    assert len(differing(unpack(rig.packed()), "float32", older)[0]) == compared


#: (way, phase, method of the receiver, call of it) at which an engine is hurt.
POINTS = [
    ("gloo", "init", "init_transfer_engine", 0),
    ("gloo", "start", "start_weight_update", 0),
    ("gloo", "update, first bucket", "receive", 0),
    ("gloo", "update, last bucket", "receive", -1),
    ("gloo", "finish", "finish_weight_update", 0),
    ("object_store", "start", "start_weight_update", 0),
    ("object_store", "update", "load", 0),
    ("object_store", "finish", "finish_weight_update", 0),
]


#: A hang costs the deadline, so that not every point is tried.
HURTS = [(point, "kill -9") for point in POINTS] + [(POINTS[number], "stop") for number in (0, 3)]


@pytest.mark.parametrize(("point", "hurt"), HURTS, ids=[f"{p[0]}-{p[1]}-{hurt}" for p, hurt in HURTS])
def test_an_engine_that_dies_or_hangs_costs_itself_only(rig: Rig, point: tuple[str, str, str, int], hurt: str) -> None:
    way, phase, method, call = point
    rig.changed()
    assert rig.update(way) == {}
    if phase == "init":
        rig.session(way).close()  # so that the next update makes a new group
    signal_number = signal.SIGKILL if hurt == "kill -9" else signal.SIGSTOP
    buckets = -(-rig.packed().nbytes // BUCKET)
    rig.engines[1].call("hurt", signal_number, method, call % buckets if call else 0)
    rig.changed()
    started = time.monotonic()
    try:
        problems = rig.update(way, timeout_s=DEADLINE_S if hurt == "kill -9" else HANG_S)
    finally:
        seconds = time.monotonic() - started
        if hurt == "stop":
            os.kill(rig.engines[1].process.pid, signal.SIGCONT)
    kind = "dead" if hurt == "kill -9" else "late"
    assert {engine: outcome.kind for engine, outcome in problems.items()} == {1: kind}
    assert seconds < (DEADLINE_S / 2 if hurt == "kill -9" else 2 * HANG_S + GRACE_S)
    rig.assert_current(0)

    started = time.monotonic()
    if hurt == "kill -9":
        rig.replace(1)
    rig.engines[1].call("ping")
    restart = time.monotonic() - started
    assert rig.update("object_store", 1) == {}
    rig.assert_current()
    rig.changed()
    assert rig.update(way) == {}
    rig.assert_current()
    outcome = f"engine 1 {kind}, engine 0 current; restored in {restart:.1f} s"
    rig.table.append(f"| {way} | {phase} | {hurt} | {outcome} | {seconds:.2f} |")


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (["update"], "update while the weight transfer is ready: no update was started"),
        (["finish"], "finish while the weight transfer is ready: nothing was sent"),
        (["start", "start"], "start while the weight transfer is started: an update is under way"),
        (["start", "finish"], "finish while the weight transfer is started: nothing was sent"),
        (["start", "update", "start"], "start while the weight transfer is updated"),
        (["start", "update", "close"], "close while the weight transfer is updated"),
    ],
)
def test_calls_out_of_order_are_refused_and_the_next_whole_update_mends(
    rig: Rig, calls: list[str], message: str
) -> None:
    rig.changed()
    payloads = {"update": {"rl_tensors": dict(rig.reference.state_dict())}}
    with pytest.raises(RuntimeError, match=message):
        rig.engines[0].call("transfer", [(name, payloads.get(name, {})) for name in calls], rig.version, None)
    assert rig.update("object_store") == {}
    rig.assert_current()
    assert rig.engines[0].call("state") == "ready"


def test_without_a_group_nothing_is_received(rig: Rig) -> None:
    assert rig.update("gloo") == {}
    rig.session("gloo").close()
    rig.engines[0].call("transfer", [("close", {})], rig.version, None)
    with pytest.raises(RuntimeError, match=r"start while the weight transfer is closed: .*not initialized"):
        rig.engines[0].call("transfer", [("start", {})], rig.version, None)
    rig.changed()
    assert rig.update("gloo") == {}
    rig.assert_current()


def test_the_rest_of_an_abandoned_update_does_not_get_into_the_next(rig: Rig) -> None:
    """vLLM counts the elements that a layer has got; left alone, the old ones make every later update fail."""
    weights = dict(rig.reference.state_dict())
    half = {name: -tensor for name, tensor in weights.items() if "q_proj" in name or "gate_proj" in name}
    calls = [("start", {}), ("update", {"rl_tensors": half}), ("update", {"no such payload": 1})]
    with pytest.raises(RuntimeError, match="update of version"):
        rig.engines[0].call("transfer", calls, rig.version + 1, None)
    assert rig.engines[0].call("state") == "broken"
    rig.changed()
    assert rig.update("gloo") == {}
    rig.assert_current()


def test_an_engine_samples_nothing_between_start_and_finish(rig: Rig) -> None:
    rig.changed()
    engine = rig.engines[0]
    weights = {"rl_tensors": dict(rig.reference.state_dict())}
    engine.call("transfer", [("start", {})], rig.version, None)
    asked = engine.begin("generate", PROMPT, Sampling(max_tokens=4, temperature=0.0))
    assert not engine.pipe.poll(0.5)
    engine.call("transfer", [("update", weights), ("finish", {})], rig.version, None)
    while asked not in engine.answers:
        assert engine.pipe.poll(30)
        engine.collect()
    completion = engine.answers.pop(asked)
    assert distance(rig.reference, completion) < 1e-4
    assert rig.update("object_store") == {}


def test_what_arrives_damaged_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.session("gloo").close()  # checksums are checked when members have met
    rig.changed()
    monkeypatch.setattr(links, "_digest", lambda packed, bucket: "0" * 64)
    problems = rig.update("gloo")
    assert {engine: outcome.kind for engine, outcome in problems.items()} == {0: "failed", 1: "failed"}
    assert "bucket 0 arrived with another checksum" in problems[0].text
    monkeypatch.undo()
    assert rig.update("gloo") == {}
    rig.assert_current()


@pytest.mark.parametrize(("level", "state"), [(1, "asleep"), (2, "empty")])
@pytest.mark.parametrize("way", WAYS)
def test_a_sleeping_engine_wakes_with_an_update(rig: Rig, way: str, level: int, state: str) -> None:
    """vLLM's own sleep and wake by tags; on CPUs its worker frees nothing, so that this shows the calls only."""
    rig.changed()
    assert rig.update(way) == {}
    for engine in rig.engines.values():
        engine.call("sleep", level)
        assert engine.call("state") == state
    rig.changed()
    assert rig.update(way) == {}
    rig.assert_current()


@pytest.mark.parametrize("bucket_bytes", [1, 25_600, 25_601, 1 << 30])
def test_edges_of_buckets(rig: Rig, bucket_bytes: int) -> None:
    """Every tensor larger than a bucket; the embedding just fits (25,600 bytes would not); all in one."""
    session = Session(PipePeers(rig.engines), GlooLink(bucket_bytes=bucket_bytes))
    for _ in range(2):  # with checksums and without
        rig.changed()
        assert session.update([0, 1], rig.packed(), rig.version, DEADLINE_S) == {}
        rig.assert_current()
    session.close()
    rig.session("gloo").close()


def test_an_untied_head_and_bfloat16(rig: Rig, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(rig.folder, tie_word_embeddings=False)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(tmp_path)
    engine = HostedEngine(settings(tmp_path, "gloo", dtype="bfloat16"))
    peers = PipePeers({0: engine})
    seen = []
    for version, link in enumerate((GlooLink(bucket_bytes=BUCKET), StoreLink()), 1):
        session = Session(peers, link)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.02 * torch.randn(parameter.shape)
        packed = pack(model.state_dict())
        assert "lm_head.weight" in unpack(packed)
        assert session.update([0], packed, version, DEADLINE_S) == {}
        wrong, compared = differing(unpack(packed), "bfloat16", engine.call("checksums"))
        assert wrong == [] and compared >= 8
        completion = engine.generate(PROMPT)
        assert distance(model.bfloat16(), completion) < 0.1
        model.float()
        other = pack({name: t.bfloat16() for name, t in unpack(packed).items()})  # half the bytes, equal values
        assert Session(peers, link).update([0], other, version, DEADLINE_S) == {}
        assert engine.generate(PROMPT) == completion
        seen.append(completion.logprobs)
    assert seen[0] != seen[1]
    engine.kill()
