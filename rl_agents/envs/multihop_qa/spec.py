"""What the registry knows about multihop_qa."""

from __future__ import annotations

from rl_agents.envs.base import EnvSpec

SPEC = EnvSpec(
    name="multihop_qa",
    summary="answer questions whose facts lie in several passages, with a search tool",
    reference="StepPO, appendix B (multi-hop QA: HotpotQA, 2Wiki, MuSiQue); PRS and VSPO, experiments (short-form QA)",
    module="rl_agents.envs.multihop_qa",
    gym_id="rl_agents/MultihopQA-v0",
    options={
        "questions": "generated",
        "test_questions": "",
        "passages": "",
        "retriever": "bm25",
        "retriever_model": "",
        "query_prefix": "",
        "passage_prefix": "",
        "hits": 3,
        "max_calls": 4,
        "passage_characters": 1500,
        "prompt": "paper",
        "malformed": "retry",
        "reward": "em",
        "max_turns": 5,
    },
    max_turns=5,
    progress_window=2,
)
