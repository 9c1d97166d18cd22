"""A judge: references and points occur in the answer word for word."""

from rl_agents.rewards.judges import judge


@judge("own-words", "a reference, or every point, occurs in the answer word for word")
def judged(reading, asked):
    """Whether an answer is correct without inventions (``verdict``), or covers every point (``complete``).

    A judge that calls a server is ``async def``.
    """
    said = reading.answer.lower()
    if asked == "complete":
        return all(point.lower() in said for point in reading.points)
    return any(reference.lower() in said for reference in reading.references)
