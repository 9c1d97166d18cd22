"""Model folders that cannot work: one line and exit code 2, before anything is started or written."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_models import save_chat_model
from safetensors.torch import load_file, save_file

from rl_agents.cli import main
from rl_agents.learner.model_check import check_model

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("sound"))


def change_config(**keys: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))

    return change


def change_weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        change(weights)
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})

    return changed


def set_number(name: str, value: float) -> Callable[[dict[str, torch.Tensor]], Any]:
    return lambda weights: weights[name].view(-1)[-1].fill_(value)


def remove(*patterns: str) -> Callable[[Path], None]:
    return lambda folder: [path.unlink() for pattern in patterns for path in folder.glob(pattern)] and None


def cut(size: int) -> Callable[[Path], None]:
    return lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:size]) and None


def change_header(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Write another header; where ``change`` returns something, that one."""

    def changed(folder: Path) -> None:
        data = (folder / WEIGHTS).read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:end])
        text = json.dumps(change(header) or header).encode()
        (folder / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + data[end:])

    return changed


def smaller_vocabulary(folder: Path) -> None:
    change_config(vocab_size=300)(folder)
    change_weights(lambda w: w.update({"model.embed_tokens.weight": w["model.embed_tokens.weight"][:300].clone()}))(
        folder
    )


def lost_shard(folder: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


Q = "model.layers.0.self_attn.q_proj.weight"
CASES: list[tuple[str, Callable[[Path], Any], str]] = [
    ("small vocabulary", smaller_vocabulary, "its tokenizer has ids up to 310, the model embeds 300"),
    ("no chat template", remove("chat_template.jinja"), "the tokenizer has no chat template"),
    ("wrong shape", change_config(hidden_size=64), "is 311 x 32 in the weights and 311 x 64 in config.json"),
    ("missing tensor", change_weights(lambda w: w.pop(Q)), f"1 tensors are missing from its weights, such as {Q}"),
    ("truncated", cut(20_000), "model.safetensors has 20000 bytes of"),
    ("longer", lambda f: (f / WEIGHTS).open("ab").write(b"more"), "copy it again"),
    ("a web page", lambda f: (f / WEIGHTS).write_text("<html>no such model</html>" * 9), "as a web page or a pointer"),
    (
        "no shape",
        change_header(lambda h: h[Q].pop("shape") and None),
        "is no whole safetensors file: invalid JSON in h",
    ),
    ("a list as header", change_header(lambda h: [1]), "is no whole safetensors file: invalid JSON in header"),
    ("lost shard", lost_shard, "model-00002-of-00002.safetensors is missing"),
    (
        "NaN",
        change_weights(set_number("model.layers.1.mlp.up_proj.weight", float("nan"))),
        "up_proj.weight holds numbers",
    ),
    ("no weights", remove("*.safetensors"), "no *.safetensors weights"),
    ("broken config", lambda f: (f / "config.json").write_text("{"), "broken JSON"),
    ("unknown kind", change_config(model_type="abacus"), "config.json is no causal language model's"),
]


@pytest.mark.parametrize(("damage", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_one_line_and_exit_code_2(sound: Path, tmp_path, capsys, damage: Any, words: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(sound, folder)
    damage(folder)
    argv = ["--model", str(folder), "--local"]
    for command in (["eval", *argv], [*argv, "--output", str(tmp_path / "out")]):
        code = main(command)
        error = capsys.readouterr().err
        assert code == 2 and len(error.splitlines()) == 1 and words in error, error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("engine", ["torch", "vllm"])
def test_a_context_beyond_the_models(sound: Path, tmp_path, capsys, engine: str) -> None:
    keys = [f"engine={engine}", "max_model_len=40000", "max_response_tokens=64"]
    assert main(["--model", str(sound), "--output", str(tmp_path / "out"), "--set", *keys]) == 2
    error = capsys.readouterr().err
    assert f"max_model_len=40000: model={sound} reads 32768 tokens at most" in error and len(error.splitlines()) == 1


def test_a_sound_folder_passes_and_is_read_once(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_model(sound) == sound
    monkeypatch.setattr("rl_agents.learner.model_check._check_numbers", lambda *args: pytest.fail("read again"))
    assert check_model(sound) == sound


@pytest.mark.parametrize("tied", [True, False])
def test_shards_and_an_untied_head_pass(tmp_path: Path, tied: bool) -> None:
    from transformers import AutoModelForCausalLM

    folder = save_chat_model(tmp_path, tie_word_embeddings=tied)
    model = AutoModelForCausalLM.from_pretrained(folder)
    (folder / WEIGHTS).unlink()
    model.save_pretrained(folder, max_shard_size="30KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert check_model(folder) == folder
