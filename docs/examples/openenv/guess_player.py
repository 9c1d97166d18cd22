"""A mediocre player of server.py, which the warm-start model imitates."""


def guess(observation, random):
    return str(random.randint(1, 7))
