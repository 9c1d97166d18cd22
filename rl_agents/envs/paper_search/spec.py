"""What the registry knows about paper_search."""

from __future__ import annotations

from rl_agents.envs.base import EnvSpec

SPEC = EnvSpec(
    name="paper_search",
    summary="collect the papers that meet a request, by searching and by following citations",
    reference="StepPO, appendix B (academic paper search)",
    module="rl_agents.envs.paper_search",
    gym_id="rl_agents/PaperSearch-v0",
    options={
        "papers": "generated",
        "bad_data": "error",
        "prompt": "paper",
        "malformed": "retry",
        "retriever": "bm25",
        "retriever_model": "",
        "query_prefix": "",
        "passage_prefix": "",
        "results": 10,
        "citing": 30,
        "references": 99,
        "max_calls": 5,
        "listed": 40,
        "abstract_characters": 0,
        "min_score": 0.01,
        "search_cost": 0.0,
        "expand_cost": 0.0,
        "penalty": 0.5,
        "threshold": 0.5,
        "success_f1": 0.8,
        "selector": "rule",
        "selector_url": "",
        "selector_model": "",
        "selector_key_env": "",
        "selector_timeout_s": 30.0,
        "selector_retries": 2,
        "selector_threads": 16,
        "max_turns": 5,
    },
    max_turns=5,
)
