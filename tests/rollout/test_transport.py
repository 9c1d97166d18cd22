"""Episodes on their way from an env runner to the driver."""

import pickle
from dataclasses import replace

from rl_agents.data.trajectory import EpisodeSpec, Step, Trajectory, repeated, unrepeated
from rl_agents.rollout.agent_loop import Rollouts


def dialogue(turns: int, start: int = 1000) -> list[Step]:
    """A dialogue whose every prompt continues the one before."""
    steps, prompt = [], [start, start + 1]
    for turn in range(turns):
        said = [start + 10 * turn + number for number in range(20)]
        steps.append(Step(prompt, said, [-0.5] * 20, 3, "stop", "sees", "anchor", "does", call=turn + 1))
        prompt = [*prompt, *said, 7, 8]
    return steps


def test_episodes_arrive_as_they_were_sent_and_prompts_once() -> None:
    window = [replace(step, prompt_ids=[5, turn]) for turn, step in enumerate(dialogue(3))]  # no prompt continues
    empty = Trajectory("a", 0, 0, 1, [], end_cause="context_length", truncated=True)
    played = [Trajectory("b", 0, 1, 2, dialogue(4), success=True, metrics={"x": 1.0}, facts={"evidence": "e"}), empty]
    sent = Rollouts(
        [*played, Trajectory("c", 1, 0, 3, window + dialogue(2))], [EpisodeSpec("d", 1, 1, 4)],
        engine_errors=["engine 0 died"], input_error="no",
    )  # fmt: skip
    before = repr(sent.trajectories)
    assert pickle.loads(pickle.dumps(sent)) == sent and repr(sent.trajectories) == before
    turns = 30
    whole, sent = (len(pickle.dumps(part)) for part in (dialogue(turns), unrepeated(dialogue(turns))))
    assert sum(len(step.prompt_ids) for _, step in unrepeated(dialogue(turns))) == 2 * turns
    assert sent < whole / 3 and repeated(unrepeated(dialogue(turns))) == dialogue(turns)
