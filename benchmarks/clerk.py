"""A tool task for pretrained models: two look-ups and a sum through a real MCP server.

    python -m benchmarks.clerk DIR           # servers.json, train.jsonl, test.jsonl and demonstrations.jsonl
    python -m benchmarks.clerk --serve       # the server, over standard input and output

"How old are Ann and Bob together?" takes a call of ``age_of`` for each person, a call of ``add``, and an answer. The
persons of the test questions occur in no training question, so the model cannot know their ages. The reward is the
exact match. One constant answer is right for at most `MOST_CONSTANT` of the test questions; copying the question or
one tool's result never is.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import command_line

NAMES = (
    "Ada", "Amy", "Ann", "Ben", "Bob", "Carl", "Clara", "Dan", "Dora", "Ella", "Emma", "Eva",
    "Fred", "George", "Grace", "Hans", "Helen", "Henry", "Ian", "Ida", "Jack", "Jane", "John", "Julia",
    "Karl", "Kate", "Laura", "Leo", "Lily", "Lucy", "Mark", "Mary", "Max", "Mia", "Nina", "Noah",
    "Oscar", "Paul", "Peter", "Rosa", "Ruth", "Sam", "Sara", "Simon", "Sophie", "Tim", "Tom", "Victor",
)  # fmt: skip
#: Persons of the test questions.
HELD_OUT = 12
AGES = {name: random.Random(name).randrange(20, 80) for name in NAMES}
DEMONSTRATIONS = 160
#: Probability of each of the three turns of the scripted player to be right.
RIGHT = 0.6
MOST_CONSTANT = 0.05
#: A chat template as the model's own, which has no tools; ids are the same where there are none.
TEMPLATE = """\
{%- if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, \
trained by Hugging Face<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') }}
{%- for call in message['tool_calls'] or [] %}{{ '<tool_call>{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{ '}</tool_call>' }}{% endfor %}
{%- if loop.first and tools %}{{ '\\n\\nTools:' }}{% for tool in tools %}{{ '\\n' + tool.function.name + '(' }}
{{- tool.function.parameters.properties | join(', ') }}{{ '): ' + tool.function.description }}{% endfor %}{% endif %}
{{- '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""


def questions(split: str) -> list[dict[str, str]]:
    """Rows of `env.tasks`: every ordered pair of the persons of ``train`` or ``test``."""
    persons = random.Random(0).sample(NAMES, len(NAMES))
    persons = persons[:HELD_OUT] if split == "test" else persons[HELD_OUT:]
    return [
        {"id": f"{a}/{b}", "question": f"How old are {a} and {b} together?", "answer": str(AGES[a] + AGES[b])}
        for a, b in itertools.permutations(persons, 2)
    ]


def constant_share() -> float:
    """Share of test questions that the best constant answer solves."""
    answers = Counter(row["answer"] for row in questions("test"))
    return answers.most_common(1)[0][1] / answers.total()


def call(tool: str, /, **arguments: Any) -> str:
    asked = json.dumps({"name": tool, "arguments": arguments})
    return f"<tool_call>{asked}</tool_call>"


def answer(value: int) -> str:
    return f"<answer>{value}</answer>"


def play(row: dict[str, str], dice: random.Random) -> Iterator[str]:
    """The scripted player's turns; each is wrong with probability 1 - `RIGHT`, in the form of a right one."""
    a, b = row["id"].split("/")
    other = dice.choice(NAMES)
    yield call("age_of", name=a) + call("age_of", name=b if dice.random() < RIGHT else other)
    terms = [AGES[a], AGES[b] if dice.random() < RIGHT else AGES[other]]
    yield call("add", a=terms[0], b=terms[1])
    yield answer(sum(terms) if dice.random() < RIGHT else dice.choice(terms))


def demonstrations(servers: Path, tasks: Path, seed: int = 1, count: int = DEMONSTRATIONS) -> Iterator[dict[str, Any]]:
    """Chats of the scripted player in the real environment, in OpenAI's form."""
    from rl_agents.background import settled
    from rl_agents.envs.base import make_env

    env = make_env("mcp", {"servers": str(servers), "tasks": str(tasks)}, 4)
    dice = random.Random(seed)
    for row in dice.choices(questions("train"), k=count):
        _, info = settled(env.reset(options={"task_id": row["id"]}))
        messages, over = list(info["messages"]), False
        for action in play(row, dice):
            observation, _, *ended, _ = settled(env.step(action))
            messages += [{"role": "assistant", "content": action}, {"role": "user", "content": observation}]
            over = any(ended)
            if over:
                break
        yield {"messages": messages[:-1], "tools": info["tools"]}
    env.close()


def write(folder: Path, seed: int = 1) -> None:
    """Write the files; ``seed``: of the demonstrations."""
    folder.mkdir(parents=True, exist_ok=True)
    root = str(Path(__file__).resolve().parents[1])
    server = {"command": sys.executable, "args": ["-m", "benchmarks.clerk", "--serve"], "cwd": root}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"clerk": server}}), encoding="utf-8")
    rows = {f"{split}.jsonl": questions(split) for split in ("train", "test")}
    for name, found in (*rows.items(), ("demonstrations.jsonl", None)):
        lines = found or demonstrations(folder / "servers.json", folder / "train.jsonl", seed)
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def serve() -> None:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server = MCPServer("clerk")

    @server.tool()
    def age_of(name: str) -> int:
        """Return the age of a person."""
        if name not in AGES:
            raise ToolError(f"no such person: {name}")
        return AGES[name]

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    server.run()


def main() -> None:
    parser = command_line(__doc__, {"serve": False})
    parser.add_argument("folder", type=Path, nargs="?", metavar="DIR")
    args = parser.parse_args()
    if args.serve:
        serve()
    elif args.folder:
        write(args.folder)
    else:
        parser.error("give a folder to write, or --serve")


if __name__ == "__main__":
    main()
