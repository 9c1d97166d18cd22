"""Episodes of `envs.test_tool_class` in TRL's own rollout loop, as JSON: its tools, calls and sum of rewards.

Tokens are left out: the model's answers are scripted messages.
"""

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

from envs.test_tool_class import ROW, SCRIPTS, Counter, brief, told
from trl.experimental.async_grpo import async_rollout_worker as trl


class Loop(trl._AsyncRolloutLoop):
    async def _generate_one_turn(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        return [0], [0.0]

    def _push_rollout_metrics(self, **values: Any) -> None:
        pass


def message(calls: Any) -> dict[str, Any]:
    made = [{"type": "function", "function": {"name": c.name, "arguments": dict(c.arguments)}} for c in calls]
    return {"role": "assistant", "content": "", **({"tool_calls": made} if made else {})}


async def episode(script: Any) -> dict[str, float]:
    turns = iter(script)
    trl.logger = logging.getLogger("trl")
    trl.parse_response = lambda *_, **__: message(next(turns))
    trl.is_chat_template_prefix_preserving = lambda tokenizer: True
    trl._chain_to_sequences = lambda *_: ([], None)
    queues = ("rollout_buffer", "model_version_value", "heartbeat_value", "failed_event", "exception_info_queue")
    loop = Loop(
        model_name="", dataset=[], reward_funcs=[brief, told], eos_token_ids=[0], environment_factory=Counter,
        processing_class=SimpleNamespace(response_template=1, apply_chat_template=lambda *_, **__: [0]),
        metrics_queue=None, **dict.fromkeys(queues),
    )  # fmt: skip
    env, tools = loop._environment_pool[None][0], loop._env_tools[None]
    *before, last = ROW["prompt"]
    prompt = [*before, {**last, "content": last["content"] + env.reset(**ROW)}]
    said, ids, *_ = await loop._generate_one(prompt, {tool.__name__: tool for tool in tools}, tools)
    columns = {"start": [ROW["start"]], "environments": [env], "log_metric": lambda name, value: None}
    row = SimpleNamespace(input_ids=[0], completion_mask=[1], old_log_probs=[0.0])
    own = (Counter, await env.get_reward())
    group = trl.RolloutGroup([prompt], columns, [said], [ids], [[row]], [0], [0], 0, 0, [own], [None])
    (sample,) = await loop._score_group(group)
    return sample.metrics


if __name__ == "__main__":
    print(json.dumps({name: asyncio.run(episode(script)) for name, script in SCRIPTS.items()}))
