"""A checkpoint with its model card: as a folder that transformers loads, and uploaded to a Hub that refuses it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from rl_agents.algorithms import Settings
from rl_agents.cli import main
from rl_agents.reporting.run_folder import RunFolder

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    """Return a run's folder with two evaluations and a checkpoint at iteration 10."""
    path = tmp_path_factory.mktemp("push") / "demo"
    keys = {"algo": "steppo", "model": "Qwen/Qwen2.5-0.5B", "lr": 0.002, "pool": "postgresql://me:word@host/db"}
    folder = RunFolder.create(path, Settings.from_dict({**keys, "env.prompt": "compact"}))
    for iteration, success in ((0, 0.25), (10, 0.75)):
        figures = {"eval/success_rate": success, "eval/success_low": success - 0.1, "eval/success_high": success + 0.1}
        folder.append_metrics(
            {"iteration": iteration, **figures, "eval/episodes": 128.0, "rollout/response_tokens": 5e3}
        )
    shutil.copytree(tiny_model_dir, folder.checkpoint(10) / "hf")
    folder.plot_file.write_bytes(b"a picture")
    folder.build_file.write_text(json.dumps([{"version": "0.1.0", "commit": "abcdef0123456789", "from_iteration": 0}]))
    return path


def test_a_folder_that_transformers_reads_with_its_card(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import ModelCard
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target = tmp_path / "house-agent"
    assert main(["push", str(run), "--folder", str(target)]) == 0
    assert AutoModelForCausalLM.from_pretrained(target).config.vocab_size == len(AutoTokenizer.from_pretrained(target))
    card = ModelCard.load(target / "README.md")
    assert card.data.base_model == "Qwen/Qwen2.5-0.5B" and "steppo" in card.data.tags
    for words in (
        "# house-agent", "10 iterations, 10 k sampled tokens", "commit abcdef012345",
        "| 0 | 0.250 | [0.15, 0.35] | 128 |", "| 10 | 0.750 | [0.65, 0.85] | 128 |", "lr: 0.002",
    ):  # fmt: skip
        assert words in card.text, words
    assert card.data.license is None and "license: not in the card" in capsys.readouterr().out
    assert "word" not in (target / "config.yaml").read_text() + card.text, "no credentials"
    assert yaml.safe_load((target / "config.yaml").read_text())["algo"] == "steppo"
    assert (target / "success.png").read_bytes() == b"a picture"
    assert main(["push", str(run), "--folder", str(target)]) == 2, "not over another one"


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    """Return the folder of a LoRA run whose base model is a local folder with a license in its card."""
    import torch
    from transformers import AutoModelForCausalLM

    from rl_agents.inference.weights import untied
    from rl_agents.learner.hf import save_hf_folder
    from rl_agents.learner.learner import save_adapter

    peft = pytest.importorskip("peft")
    path = tmp_path_factory.mktemp("push-adapter")
    base = shutil.copytree(tiny_model_dir, path / "secret" / "small-base")
    front = {"license": "other", "license_name": "small", "license_link": "https://small.example/license", "tags": []}
    (base / "README.md").write_text(f"---\n{yaml.safe_dump(front)}---\n# A base\n")
    folder = RunFolder.create(path / "demo", Settings.from_dict({"algo": "grpo", "model": str(base), "lora_rank": 2}))
    config = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.2, generator=torch.Generator().manual_seed(1))
    save_adapter(folder.checkpoint(4) / "adapter", model, str(base), str(base))
    merged = untied(model.merge_and_unload().state_dict(), tied=True)
    save_hf_folder(folder.checkpoint(4) / "hf", merged, base)
    return path / "demo"


def test_an_adapter_alone_names_its_base_and_gives_the_merged_models_logits(adapted: Path, tmp_path: Path) -> None:
    import torch
    from huggingface_hub import ModelCard
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target = tmp_path / "adapter"
    assert main(["push", str(adapted), "--folder", str(target), "--adapter"]) == 0
    assert {path.name for path in target.iterdir()} >= {"adapter_config.json", "tokenizer.json", "config.yaml"}
    assert [path.name for path in target.glob("*.safetensors")] == ["adapter_model.safetensors"]
    assert not (target / "config.json").exists() and len(AutoTokenizer.from_pretrained(target)) > 0
    card = ModelCard.load(target / "README.md")
    assert (card.data.library_name, card.data.license) == ("peft", "other")
    assert card.data.license_name == "small" and "needs its base model, a model in a local folder" in card.text
    assert "secret" not in "".join(path.read_text() for path in target.iterdir() if path.suffix in (".json", ".md"))
    base = adapted.parent / "secret" / "small-base"
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), target).eval()
    merged = AutoModelForCausalLM.from_pretrained(adapted / "checkpoints" / "000004" / "hf")
    ids = torch.arange(3, 40)[None]
    assert torch.allclose(loaded(ids).logits, merged(ids).logits, atol=1e-4)
    assert main(["push", str(adapted), "--folder", str(tmp_path / "merged"), "--license", "Apache-2.0"]) == 0
    card = ModelCard.load(tmp_path / "merged" / "README.md")
    assert (card.data.library_name, card.data.license) == ("transformers", "apache-2.0")
    assert not list((tmp_path / "merged").glob("adapter*"))


def test_an_adapter_that_a_checkpoint_lacks_is_refused(
    adapted: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", str(run), "--folder", str(tmp_path / "x"), "--adapter"]) == 2
    assert "no adapter: the run trains all weights (lora_rank=0); omit --adapter" in capsys.readouterr().err
    old = shutil.copytree(adapted, tmp_path / "old")
    shutil.rmtree(old / "checkpoints" / "000004" / "adapter")
    assert main(["push", str(old), "--folder", str(tmp_path / "x"), "--adapter"]) == 2
    assert "written by a version that kept no adapters" in capsys.readouterr().err and not (tmp_path / "x").exists()


def test_licenses_of_base_models(tmp_path: Path) -> None:
    from rl_agents.reporting.model_card import license_of

    assert license_of(str(tmp_path)) == license_of("starter") == license_of("nobody/nothing") == {}
    (tmp_path / "config.json").write_text('{"license": "mit"}')
    assert license_of(str(tmp_path)) == {"license": "mit"}
    (tmp_path / "README.md").write_text("---\nlicense: [broken\n---\n")
    assert license_of(str(tmp_path)) == {"license": "mit"}, "a card that is no YAML says nothing"
    (tmp_path / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\n---\n")
    assert license_of(str(tmp_path)) == {"license": "apache-2.0"}


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--folder", "x", "--license", "no such"], "--license no such: an identifier of the Hub's, such as"),
        (["me/agent", "--folder", "x"], "push needs either a repository (OWNER/NAME) or --folder DIR"),
        (["me/agent"], "push me/agent: HF_HUB_OFFLINE is set; unset it, or use --folder DIR"),
    ],
)
def test_bad_wishes_are_one_line(run: Path, flags: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["push", str(run), *flags]) == 2
    assert line in capsys.readouterr().err


def test_a_run_without_weights_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder.create(tmp_path / "run", Settings())
    folder.checkpoint(1).mkdir(parents=True)
    assert main(["push", str(tmp_path / "run"), "--folder", str(tmp_path / "out")]) == 2
    assert "no weights (hf/*.safetensors)" in capsys.readouterr().err and not (tmp_path / "out").exists()


class Refuses(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(401)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.mark.servers
def test_a_hub_that_refuses_and_one_that_is_away(run: Path, hub: str, tmp_path: Path) -> None:
    def pushed(endpoint: str, token: str) -> str:
        env = {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", "HF_TOKEN": token, "HF_HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, str(ROOT / "run.py"), "push", str(run), "me/agent"],
            env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    assert "the Hub refused (401): needs a write token of your account" in pushed(hub, "hf_wrong")
    assert "needs a write token" in pushed(hub, "")
    assert "cannot be reached" in pushed("http://127.0.0.1:9", "hf_wrong")
