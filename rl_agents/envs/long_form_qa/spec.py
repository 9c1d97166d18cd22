"""What the registry knows about long_form_qa."""

from __future__ import annotations

from rl_agents.envs.base import EnvSpec

SPEC = EnvSpec(
    name="long_form_qa",
    summary="answer questions over a document set in several sentences that the documents support",
    reference="PRS and VSPO (arXiv 2512.07478), long-form question answering",
    module="rl_agents.envs.long_form_qa",
    gym_id="rl_agents/LongFormQA-v0",
    options={
        "documents": "",
        "questions": "",
        "test_share": 0.1,
        "retriever": "bm25",
        "retriever_model": "",
        "query_prefix": "",
        "passage_prefix": "",
        "results": 3,
        "max_calls": 4,
        "max_sentences": 12,
        "prompt": "paper",
        "malformed": "retry",
        "reward": "pass",
        "judge": "rule",
        "judge_url": "",
        "judge_model": "",
        "judge_key_env": "",
        "judge_timeout_s": 30.0,
        "judge_retries": 2,
        "max_turns": 6,
    },
    max_turns=6,
    progress_window=2,
)
