"""A mediocre player of the tasks, which the warm-start model imitates."""

COLORS = ["red", "blue", "green", "white"]


def bash(command):
    return f'<tool_call> {{"name": "bash", "arguments": {{"command": "{command}"}}}} </tool_call>'


def play(observation, random):
    if "boxes.txt" in observation and random.random() < 0.5:
        return bash("grep gold boxes.txt")
    if "boxes.txt" in observation or "gold" in observation:
        seen = [color for color in COLORS if f"{color} gold" in observation]
        color = seen[0] if seen and random.random() < 0.5 else random.choice(COLORS)
        return bash(f"echo {color} > answer.txt")
    return "done"
