"""Which ids the model reads next, whatever clients do to their history."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gateway.models import MAX_LEN, Rig, Scripted, reply, tokenizer, user

from rl_agents.chat.context import Append, ChatTemplate
from rl_agents.data.tasks import step_seed
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.envs.base import TextEnv
from rl_agents.rollout.agent_loop import play_episode
from rl_agents.rollout.turns import Limits

CALL = '<tool_call>\n{"arguments":{"a":1.0},"name":"add"}\n</tool_call>'
TWO_CALLS = f"both {CALL}\n{CALL}"


class Talk(TextEnv):
    """Says a number after every turn."""

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return "begin with this", {}

    def step(self, action):
        self.turn += 1
        return f"observation {self.turn}", 0.5, self.turn == 4, False, {}


def extends(prompt, step):
    """Whether a prompt begins with a step's prompt and response."""
    said = step.prompt_ids + step.response_ids
    return prompt[: len(said)] == said


def test_a_linear_agent_has_the_built_in_loops_prompts_tokens_and_seeds():
    engine, context = Scripted(), Append(ChatTemplate(tokenizer()))
    spec, limits = EpisodeSpec("t", 0, 0, seed=7), Limits(4, 12, MAX_LEN)
    expected = asyncio.run(play_episode(spec, Talk(), engine, context, limits)).steps

    async def play():
        rig = Rig()
        history = [user("begin with this")]
        for turn in range(1, 5):
            answer = await rig.ask(*history)
            rig.gateway.reward("s", 0.5, call=answer.call)
            history += [reply(answer), user(f"observation {turn}")]
        return await rig.trace()

    trace = asyncio.run(play())
    assert trace.steps == [replace(step, call=step_seed(7, n)) for n, step in enumerate(expected)]
    assert [step.finish_reason for step in trace.steps].count("length") > 0  # an end of turn had to be added
    assert all(step.next_step is None for step in trace.steps) and trace.retokenised == 0
