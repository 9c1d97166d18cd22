"""A scripted player that finds every supporting passage and then answers: what can be reached with the search tool.

In generated worlds it follows the question's plan and searches for one fact after the other, as an agent has to. For
files it looks up the titles of the supporting passages, so its score says for how many questions the search tool can
bring the evidence within the turns; where supporting passages are not known it searches for the question, and answers
if a passage names the answer.
"""

from __future__ import annotations

from functools import partial

from rl_agents.envs.multihop_qa.env import EpisodeState, MultihopQAEnv
from rl_agents.envs.multihop_qa.prompts import MAX_QUERY_CHARACTERS, SEARCH
from rl_agents.envs.multihop_qa.scores import normalize
from rl_agents.envs.multihop_qa.spec import SPEC, MultihopQAOptions
from rl_agents.envs.stateful import Played
from rl_agents.envs.stateful import play as play_episode
from rl_agents.tools.calls import ToolCall, write_response


def expert_action(state: EpisodeState, max_turns: int = SPEC.max_turns, max_calls: int = 4) -> str:
    """Return the action: the next searches while evidence is missing and a turn is left to answer, else the answer.

    It answers right only when the evidence was found; otherwise it says that it does not know.
    """
    queries = _next_queries(state)[:max_calls]
    if queries and state.turns + 1 < max_turns:
        calls = [ToolCall(SEARCH.name, {"query": query[:MAX_QUERY_CHARACTERS]}) for query in queries]
        return write_response("", calls)
    return f"<answer>{state.task.question.answers[0] if _found(state) else 'unknown'}</answer>"


def _found(state: EpisodeState) -> bool:
    question = state.task.question
    if question.supporting:
        return not state.missing
    read = (state.task.store.get(name) for name in state.seen)
    texts = [normalize(f"{passage.title} {passage.text}") for passage in read]
    return any(normalize(answer) in text for answer in question.answers for text in texts)


def _next_queries(state: EpisodeState) -> list[str]:
    question = state.task.question
    if question.plan:
        steps = [[query for query in step if query not in state.queries] for step in question.plan]
        return next((step for step in steps if step), [])
    if not question.supporting:
        return [query for query in (question.question,) if query not in state.queries]
    titles = [state.task.store.get(name).title for name in question.supporting if name in state.missing]
    queries = [f"{title} {question.question}" for title in titles] if state.turns else titles
    return [query for query in queries if query not in state.queries]


def play(task_id: str, options: MultihopQAOptions, max_turns: int = 0) -> Played:
    """Play ``task_id``; return the dialogue and the last ``info``.

    Raises:
        InputError: unknown task id.
    """
    env = MultihopQAEnv(options, max_turns)
    act = partial(expert_action, max_turns=env.max_turns, max_calls=options.max_calls)
    return play_episode(env, task_id, lambda shown: (shown, act(env.state)))
