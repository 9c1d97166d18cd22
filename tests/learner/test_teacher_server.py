"""A teacher behind a real vLLM server, the one that `rewards/test_progressive.py` asks, too."""

from pathlib import Path

import pytest
import torch
from learner.learners import random_rows
from learner.references import distributions
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from rl_agents.config import Settings
from rl_agents.errors import InputError
from rl_agents.learner.teacher import TeacherServer


@pytest.mark.ray
def test_a_real_vllm_server_scores_as_the_model_does(judge_that_says_yes: str, judge_dir: Path) -> None:
    url, folder = judge_that_says_yes, judge_dir / "model"
    server = TeacherServer(Settings.from_dict({"teacher_url": url, "teacher_model": "judge"}))
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    server.check(tokenizer)
    rows = random_rows(3, 4)
    for row, found in zip(rows, server.score(rows), strict=True):
        table = distributions(model, row, 1.0)
        expected = table[torch.arange(len(row) - 1), torch.from_numpy(row.input_ids[1:]).long()].detach().numpy()
        assert found[1:] == pytest.approx(expected, abs=1e-4) and len(found) == len(row)
    tokenizer._tokenizer.add_tokens(["Ye"])
    other = PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, unk_token="<unk>")
    with pytest.raises(InputError, match=f"teacher_url={url}: another tokenizer than the policy's: id 2 where"):
        server.check(other)
