"""A verifier: the expert's tools with any arguments."""

from rl_agents.rewards.verifiers import verifier


@verifier("own-tools", "the same tools with any arguments; any message for a message")
def score(turn, response):
    """Score an action from 0 to 1; the expert's own (``turn.calls`` or ``turn.text``) must score 1."""
    return [call.name for call in response.calls] == [call.name for call in turn.calls]
