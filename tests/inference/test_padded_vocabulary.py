"""Ids that the model embeds and its tokenizer does not have: no part of the learner's numbers.

That engines never sample them is in ``test_engines.py``, whose models are padded.
"""

import shutil
from pathlib import Path

import torch
from inference.rig import VOCABULARY

from rl_agents.inference.model_shape import padding_begins
from rl_agents.inference.torch_model import load_causal_lm
from rl_agents.learner.chunked_logprobs import shaped_head


def test_where_the_padding_begins(padded_dir: Path, tiny_model_dir: Path, tmp_path: Path) -> None:
    assert padding_begins(padded_dir) == VOCABULARY
    assert padding_begins(tiny_model_dir) is None  # no padding
    shutil.copy(padded_dir / "config.json", tmp_path)
    assert padding_begins(tmp_path) is None  # no tokenizer.json


def test_the_learner_sees_the_tokenizers_words_only(padded_dir: Path) -> None:
    lm = load_causal_lm(padded_dir, "float32").eval()
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        logits = lm(ids).logits
        states = lm.base_model(ids).last_hidden_state
    assert logits.shape[-1] == VOCABULARY and torch.equal(shaped_head(lm)(states), logits)
    assert lm.get_output_embeddings().weight.shape[0] > VOCABULARY  # as it is saved and sent
