"""A scripted player for the almanac: it searches for every part of a question and says what it read."""

from __future__ import annotations

from rl_agents.envs.long_form_qa.almanac import Wish
from rl_agents.envs.long_form_qa.env import LongFormQAEnv, QAState
from rl_agents.envs.long_form_qa.spec import LongFormQAOptions
from rl_agents.envs.long_form_qa.tasks import wishes_of
from rl_agents.envs.stateful import Played
from rl_agents.envs.stateful import play as play_episode
from rl_agents.tools.calls import ToolCall, write_response

PARALLEL = 4


def expert_action(state: QAState) -> str:
    """Return the action in the paper's style: all searches in the first turn, then the answer from what was read."""
    wishes = wishes_of(state.task.task_id)
    if not state.turns:
        calls = [ToolCall("search", {"query": f"{wish.town} {wish.aspect.name} {wish.point}"}) for wish in wishes]
        return f"<think>I need {len(calls)} facts.</think>\n{write_response('', calls[:PARALLEL])}"
    stated = " ".join(wish.point for wish in wishes if any(wish.point in text for text in state.read))
    return f"<think>I have read enough.</think>\n<answer>{stated}</answer>"


def compact_search(wish: Wish) -> str:
    """Return the search for a wish in words that the starter can write; between them are blanks."""
    town, aspect, _ = wish.words
    return f'<tool_call> {{"name":"search","arguments":{{"query":" {town} {aspect} "}}}} </tool_call>'


def compact_answer(state: QAState) -> str:
    """Return the answer in the compact style: every wished fact that was read."""
    stated = [" ".join([*wish.words, "."]) for wish in wishes_of(state.task.task_id) if was_read(wish, state)]
    return f"<answer> {' '.join(stated)} </answer>"


def was_read(wish: Wish, state: QAState) -> bool:
    """Say whether a passage that was read in the compact style states the wish."""
    return any(f"{' '.join(wish.words)} ." in text for text in state.read)


def compact_action(state: QAState) -> str:
    """Return the expert's action in the compact style: one search a turn, then the answer."""
    missing = [wish for wish in wishes_of(state.task.task_id) if not was_read(wish, state)]
    return compact_search(missing[0]) if missing else compact_answer(state)


def play(task_id: str, options: LongFormQAOptions, max_turns: int = 0) -> Played:
    """Play ``task_id``; return the dialogue and the last ``info``.

    Raises:
        InputError: unknown task id.
    """
    env = LongFormQAEnv(options, max_turns)

    def act(shown: str) -> tuple[str, str]:
        if options.prompt == "compact":
            return shown, compact_action(env.state)
        return shown, expert_action(env.state).replace("think>", f"{options.thoughts}>")

    return play_episode(env, task_id, act)
