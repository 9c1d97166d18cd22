"""A replica by itself: pieces add up, and weights change between answers."""

import asyncio
import shutil
from pathlib import Path

import pytest
from scripted_model import MAX_TOKENS, write_babbler, write_model

from rl_agents.chat.template import ChatTemplate, load_tokenizer
from rl_agents.errors import InputError
from rl_agents.inference.base import EngineError, EngineSettings, Sampling
from rl_agents.serving.options import ServingOptions
from rl_agents.serving.policy import PolicyReplica, Target
from rl_agents.serving.source import check_replaces, find_checkpoint, present, traits


class Rig:
    """One policy and its text."""

    def __init__(self, folder: Path) -> None:
        options, checkpoint = ServingOptions(checkpoint=str(folder), drain_s=60.0), find_checkpoint(folder)
        engine = EngineSettings(str(folder), max_model_len=MAX_TOKENS, max_batch=4)
        self.policy = PolicyReplica(engine, options, checkpoint)
        self.template = ChatTemplate(load_tokenizer(folder))
        self.prompt = list(self.template.opening("hello"))
        self.first = Target(0, find_checkpoint(folder))

    def sampling(self, tokens: int = 30, seed: int = 1) -> Sampling:
        return Sampling(tokens, stop_token_ids=self.template.stop_token_ids, seed=seed)

    async def say(self, target: Target | None = None) -> tuple[str, str]:
        label, completion = await self.policy.generate(self.prompt, self.sampling(), target or self.first)
        return label, self.template.decode(completion.token_ids)


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Path]:
    said = {"old": ["hello", "dear", "world"], "new": ["good", "bye"]}
    return {name: write_model(tmp_path / name, words) for name, words in said.items()}


async def test_streamed_pieces_are_the_answer_in_parts(tmp_path: Path) -> None:
    rig = Rig(write_babbler(tmp_path / "babbler"))
    for seed in range(2):
        sampling = rig.sampling(20, seed)
        _, whole = await rig.policy.generate(rig.prompt, sampling, rig.first)
        parts = [part async for _, part in rig.policy.stream(rig.prompt, sampling, rig.first)]
        assert len(parts) > 5
        assert [t for p in parts for t in p.token_ids] == whole.token_ids
        assert [x for p in parts for x in p.logprobs] == whole.logprobs
        assert [p.finish_reason for p in parts] == [""] * (len(parts) - 1) + [whole.finish_reason]


async def test_a_closed_stream_stops_the_engine(tmp_path: Path) -> None:
    rig = Rig(write_babbler(tmp_path / "babbler"))
    stream = rig.policy.stream(rig.prompt, Sampling(60, seed=1), rig.first)
    async for _ in stream:
        break
    await stream.aclose()
    await rig.policy._engine._driver  # type: ignore[attr-defined]  # which ends when no request is left
    assert rig.policy._engine.sampled_tokens < 60  # type: ignore[attr-defined]


async def test_new_weights_wait_for_running_answers_and_no_answer_is_lost_or_mixed(models: dict[str, Path]) -> None:
    rig = Rig(models["old"])
    target = Target.now(find_checkpoint(models["new"]))
    before = [asyncio.create_task(rig.say()) for _ in range(6)]
    await asyncio.sleep(0)
    load = asyncio.create_task(rig.policy.load(target))
    await asyncio.sleep(0.001)
    after = [asyncio.create_task(rig.say()) for _ in range(6)]
    await load
    answers = await asyncio.gather(*before, *after, *[rig.say() for _ in range(3)])
    assert set(answers) == {("old", "hello dear world"), ("new", "good bye")}
    assert answers[0][0] == "old" and answers[-1][0] == "new"
    assert (await rig.policy.served()) == target


async def test_a_replica_that_missed_the_change_learns_of_it_from_a_request(models: dict[str, Path]) -> None:
    rig = Rig(models["old"])
    target = Target.now(find_checkpoint(models["new"]))
    assert await rig.say(target) == ("new", "good bye")
    assert await rig.say(rig.first) == ("new", "good bye")  # a request that was on its way asks for nothing older


async def test_weights_that_cannot_be_read_change_nothing(models: dict[str, Path], tmp_path: Path) -> None:
    rig = Rig(models["old"])
    damaged = shutil.copytree(models["new"], tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(InputError, match="damaged checkpoint"):
        await rig.policy.load(Target.now(find_checkpoint(damaged)))
    pruned = find_checkpoint(shutil.copytree(models["new"], tmp_path / "pruned"))
    shutil.rmtree(pruned.hf_dir)
    assert await rig.say(Target.now(pruned)) == ("old", "hello dear world")
    assert await rig.say(Target.now(find_checkpoint(models["new"]))) == ("new", "good bye")


async def test_a_replica_with_half_of_two_checkpoints_asks_to_be_replaced(models: dict[str, Path], tmp_path) -> None:
    rig = Rig(models["old"])
    other = write_babbler(tmp_path / "other")
    await rig.policy.check_health()
    with pytest.raises((EngineError, RuntimeError)):
        await rig.policy.load(Target.now(find_checkpoint(other)))
    with pytest.raises(EngineError, match=r"new weights \(other\) were loaded in part"):
        await rig.policy.check_health()


def test_only_the_same_architecture_and_tokenizer_replace_weights(models: dict[str, Path], tmp_path: Path) -> None:
    old, new = traits(find_checkpoint(models["old"])), find_checkpoint(models["new"])
    shutil.rmtree(models["old"])  # as a run deletes the checkpoint that a server still serves
    check_replaces(new, old)
    other = write_babbler(tmp_path / "other")
    with pytest.raises(InputError, match=r"its config\.json differs; start a new server"):
        check_replaces(find_checkpoint(other), old)
    (other / "model.safetensors").replace(models["new"] / "model.safetensors")
    with pytest.raises(InputError, match="its list of tensors differs"):
        check_replaces(new, old)
    (models["new"] / "model.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(InputError, match="damaged weights"):
        check_replaces(new, old)
    (models["new"] / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(InputError, match="its chat template differs"):
        check_replaces(new, old)
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "config.json").write_text("{}")
    (pickled / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(InputError, match=r"no \*.safetensors weights"):
        find_checkpoint(pickled)


def test_the_newest_complete_checkpoint_of_a_run_is_found(models: dict[str, Path], tmp_path: Path) -> None:
    run_folder = tmp_path / "runs" / "demo"
    for name, model in (("000002", "old"), ("000010", "new"), (".tmp-000011", "new")):
        shutil.copytree(models[model], run_folder / "checkpoints" / name / "hf")
    (run_folder / "config.yaml").write_text("algo: grpo\n")
    found = find_checkpoint(run_folder)
    assert found.label == "demo/000010" and found.config_file == run_folder / "checkpoints" / "000010" / "config.yaml"
    older = find_checkpoint(run_folder / "checkpoints" / "000002")
    assert older.label == "demo/000002" and present(older, str(run_folder)) == older
    shutil.rmtree(older.hf_dir)
    assert present(older, str(run_folder)) == found
