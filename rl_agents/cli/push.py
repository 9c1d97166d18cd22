"""``python run.py push runs/NAME OWNER/MODEL``: publish a checkpoint with its model card, on the Hub or in a folder."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from rl_agents.cli.parser import Parser
from rl_agents.errors import InputError
from rl_agents.reporting.model_card import (
    CardOf,
    card_of,
    check_license,
    is_public,
    license_of,
    model_card,
    published_config,
)
from rl_agents.reporting.outputs import nothing_left
from rl_agents.reporting.run_folder import RunFolder

#: Files of a merged model that an adapter lacks: weights, configuration, our note.
OF_MODELS = shutil.ignore_patterns("*.safetensors*", "config.json", "generation_config.json", "rl_agents.json")
WRITE_TOKEN = "write token of your account: `hf auth login`, or HF_TOKEN"


def build_parser() -> Parser:
    parser = Parser("push")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder or one of its checkpoints")
    parser.add_argument("repo", nargs="?", metavar="OWNER/NAME", help="repository on the Hub; created if missing")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="write a new local folder instead; needs no network")
    parser.add_argument(
        "--adapter",
        action="store_true",
        help="publish only the LoRA adapter, in PEFT's layout (default: the merged model)",
    )
    parser.add_argument(
        "--license", metavar="ID", help="license for the card, such as apache-2.0 (default: the base model's)"
    )
    parser.add_argument("--public", action="store_true", help="make the repository public (default: private)")
    return parser


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv)
    if bool(args.repo) == bool(args.folder):
        raise InputError("push needs either a repository (OWNER/NAME) or --folder DIR")
    folder, iteration, checkpoint = RunFolder.locate(args.run)
    check_weights(folder, checkpoint, args.adapter)
    if args.folder:
        RunFolder.check_free(args.folder)
    name = check_repo(args.repo) if args.repo else ""
    card = card_of(folder, iteration, args.adapter, terms_of(folder, args.license))
    if args.folder:
        with nothing_left(args.folder):
            write_model(card, checkpoint, args.folder, args.folder.resolve().name)
        print(f"{what(card)}: {args.folder}")
        return 0
    with tempfile.TemporaryDirectory(prefix="push-") as scratch:
        write_model(card, checkpoint, Path(scratch), name.partition("/")[2])
        print(f"{what(card)}: {upload(Path(scratch), name, args, f'{folder.path.name}, iteration {iteration}')}")
    return 0


def check_repo(name: str) -> str:
    """Return a valid name on the Hub.

    Raises:
        InputError: it is invalid.
    """
    from huggingface_hub.utils import validate_repo_id
    from huggingface_hub.utils._validators import HFValidationError

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise InputError(f"{name}: {str(error).splitlines()[0]}") from None
    if name.count("/") != 1:
        raise InputError(f"{name}: a repository is OWNER/NAME; for a local folder use --folder {name}")
    return name


def check_weights(folder: RunFolder, checkpoint: Path, adapter: bool) -> None:
    """Check that a checkpoint has the weights to publish.

    Raises:
        InputError: it lacks them.
    """
    if not list(checkpoint.glob("hf/*.safetensors*")):
        raise InputError(f"{checkpoint}: no weights (hf/*.safetensors)")
    if adapter and not list(checkpoint.glob("adapter/*.safetensors")):
        if not folder.load_settings().lora_rank:
            raise InputError(f"{checkpoint}: no adapter: the run trains all weights (lora_rank=0); omit --adapter")
        raise InputError(
            f"{checkpoint}: written by a version that kept no adapters; --resume {folder.path} writes the next with one"
        )


def terms_of(folder: RunFolder, named: str | None) -> dict[str, str]:
    """Return the card's license fields; print one line if no license is known."""
    if named:
        return {"license": check_license(named)}
    found = license_of(folder.load_settings().model)
    if not found:
        print("license: not in the card, since no license was found for the base model; --license ID adds one")
    return found


def what(card: CardOf) -> str:
    return "adapter and card" if card.adapter else "model and card"


def write_model(card: CardOf, checkpoint: Path, target: Path, name: str) -> None:
    """Write weights, tokenizer, card, curve and configuration into ``target``."""
    folder = card.folder
    shutil.copytree(checkpoint / "hf", target, dirs_exist_ok=True, ignore=OF_MODELS if card.adapter else None)
    if card.adapter:
        write_adapter(checkpoint / "adapter", target)
    (target / "README.md").write_text(model_card(card, name), encoding="utf-8")
    config = published_config(folder.load_settings())
    (target / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    if folder.plot_file.is_file():
        shutil.copy(folder.plot_file, target / folder.plot_file.name)


def write_adapter(source: Path, target: Path) -> None:
    """Copy PEFT's two files, with only the folder name of a local base model."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    file = target / "adapter_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    base = config["base_model_name_or_path"]
    config["base_model_name_or_path"] = base if is_public(base) else Path(base).name
    file.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")


def upload(model: Path, repo: str, args: argparse.Namespace, message: str) -> str:
    """Upload a folder to the Hub; return its address.

    Raises:
        InputError: no token, no permission, or no network.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled

    no_answer: Any = HfHubHTTPError.__bases__[0]  # of the HTTP library that this version uses
    api = HfApi()
    try:
        api.create_repo(repo, private=not args.public, exist_ok=True)
        if not args.public and api.repo_info(repo).private is False:
            raise InputError(f"push {repo}: the repository exists and is public: add --public, or choose another name")
        api.upload_folder(repo_id=repo, folder_path=model, commit_message=message)
    except OfflineModeIsEnabled:
        raise InputError(f"push {repo}: HF_HUB_OFFLINE is set; unset it, or use --folder DIR") from None
    except LocalTokenNotFoundError:
        raise InputError(f"push {repo}: needs a {WRITE_TOKEN}") from None
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", 0)
        needs = f"needs a {WRITE_TOKEN}" if status in (401, 403) else str(error).splitlines()[0]
        raise InputError(f"push {repo}: the Hub refused ({status}): {needs}") from None
    except (OSError, no_answer) as error:
        raise InputError(f"push {repo}: the Hub cannot be reached: {error}; --folder DIR needs no network") from None
    return f"{api.endpoint}/{repo}"
