"""A mediocre player of sums.py, which the warm-start model imitates."""


def guess(observation, random):
    a, _, b, _ = observation.split()
    return str(random.choice([int(a) + int(b), random.randint(0, 8)]))
