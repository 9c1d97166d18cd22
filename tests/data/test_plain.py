"""Plain data of data classes: the same JSON as `dataclasses.asdict`, and as independent."""

import json
from dataclasses import asdict

from rl_agents.data.trajectory import Step, Trajectory, plain
from rl_agents.rollout.env_calls import EnvReply


def test_the_same_json_as_asdict() -> None:
    step = Step([1, 2], [3], [-0.5], 4, "stop", "seen", "anchor", "act", version_spans=((4, 1),))
    facts = {"references": ["a"], "truncation": {"turn": 2}, "found": [step], "nothing": [], "missing": [None]}
    trajectory = Trajectory("task", 1, 2, 3, [step, step], metrics={"score": 1.0}, facts=facts)
    reply = EnvReply("seen", chat=({"role": "user", "content": "hello"},), evidence=("one", "two"))
    for value in (trajectory, reply, Trajectory("empty", 0, 0, 0)):
        assert json.dumps(plain(value)) == json.dumps(asdict(value))
    assert plain(trajectory)["steps"][0]["prompt_ids"] is not step.prompt_ids
