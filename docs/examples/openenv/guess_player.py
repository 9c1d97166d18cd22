"""A mediocre player of server.py, which follows every second hint. The warm-start model imitates it."""


def guess(observation, random):
    last, *_, way = observation.split()
    low, high = 1, 7
    if random.random() < 0.5:
        low = int(last) + 1 if way == "low" else low
        high = int(last) - 1 if way == "high" else high
    return str(random.randint(low, high))
