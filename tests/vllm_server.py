"""vLLM's OpenAI server on a model that always says one word: ``python vllm_server.py FOLDER WORD PORT``."""

import multiprocessing
import os
import sys
from pathlib import Path

os.environ |= {"TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }} {% endfor %}{% if add_generation_prompt %}<eos> {% endif %}"
)


def constant_model(folder: Path, word: str) -> None:
    """Layers add nothing. After any token but the word the head prefers the word, after the word the end.

    Qwen3, because transformers loads Qwen2's own tokenizer beside every Qwen2 model.
    """
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2, word: 3}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=4, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=2048, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name:
                weight.zero_()
        embeddings, head = model.get_input_embeddings().weight, model.lm_head.weight
        embeddings[:3, 0], embeddings[3, 1] = 1.0, 1.0
        head[3, 0], head[1, 1] = 1.0, 1.0
    model.save_pretrained(folder)


def serve(folder: Path, port: int) -> None:
    """Run the server until it is killed."""
    import asyncio

    from rl_agents.inference.vllm_common import prepare_environment, register_model_class

    prepare_environment()
    import vllm.v1.engine.utils as launcher
    from vllm.entrypoints.launchers.api_server.entry import run_server
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    # vLLM's CPU build spawns its core process, which imports everything again (10 CPU seconds).
    launcher.get_mp_context = lambda: multiprocessing.get_context("fork")
    register_model_class(str(folder))
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(
        ["--model", str(folder), "--served-model-name", "judge", "--host", "127.0.0.1", "--port", str(port),
         "--enforce-eager", "--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "8",
         "--kv-cache-memory-bytes", str(1 << 26), "--block-size", "32",
         "--distributed-executor-backend", "vllm.v1.executor.uniproc_executor.UniProcExecutor"]
    )  # fmt: skip
    asyncio.run(run_server(args))


if __name__ == "__main__":
    constant_model(Path(sys.argv[1]), sys.argv[2])
    serve(Path(sys.argv[1]), int(sys.argv[3]))
