"""The agent's prompts and the reading of its responses, in three styles.

- ``3spo``: the prompt of 3SPO (appendix C.3), which GiGPO and HGPO use as well; ``<think>``, then ``<action>``.
- ``steppo``: the prompt and the tool of StepPO (appendix C); one ``<tool_call>`` of ``env_step``.
- ``compact``: few words in lower case, for small models. Products are named by their place on the page, and the
  response is the bare command.

The texts of the first two are quoted from the papers. The texts between the turns of a growing dialogue are new.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rl_agents.envs.spec import cut_text
from rl_agents.envs.tool_turns import text_tool
from rl_agents.envs.webshop import pages
from rl_agents.envs.webshop.pages import Page
from rl_agents.envs.webshop.records import NO_LIMIT, Goal
from rl_agents.envs.webshop.reward import Score
from rl_agents.envs.webshop.tasks import ShopReply
from rl_agents.tools.calls import check_call, read_response
from rl_agents.tools.thoughts import read_thoughts
from rl_agents.tools.toolbox import feedback

#: Characters of a page in a prompt, and of its list of actions, at most.
MAX_PAGE = 8000
MAX_HISTORY_ACTION = 500

NO_ACTION, SEVERAL_ACTIONS, BAD_CALL = "no-action", "several-actions", "bad-call"
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)

_3SPO_BEGIN = """\
You are an expert autonomous agent operating in the WebShop e-commerce environment.
Your task is to: {task}.
"""
_3SPO_HISTORY = """\
Prior to this step, you have already taken {steps} step(s). Below are the most recent {length} observations and the \
corresponding actions you took:
{history}
You are now at step {step} and your current observation is: {observation}.
"""
_3SPO_NOW = "Your current observation is: {observation}.\n"
_3SPO_ACTIONS = """\
Your admissible actions of the current situation are:
[{actions}].
"""
_3SPO_END = """
Now it's your turn to take one action for the current step.
You should first reason step-by-step about the current situation, then think carefully which admissible action best \
advances the shopping goal. This reasoning process MUST be enclosed within <think> </think> tags.
Once you've finished your reasoning, you should choose an admissible action for current step and present it within \
<action> </action> tags."""

ENV_STEP = text_tool(
    "env_step",
    "Execute one WebShop action and return the next observation.",
    "command",
    "A single action such as `search[wireless headphones]` or `click[Buy Now]`.",
)

_STEPPO = """\
You are acting in the WebShop text environment. Your goal is to find and buy the product that best satisfies the \
shopping instruction. Use exactly one executable WebShop action each turn through the env_step tool. Do not explain.
Shopping Instruction
{task}
{now}
Instructions
- Use exactly one action through the `env_step` tool.
- The `command` must be one available action exactly, except replace `<your query>` in `search[<your query>]` with \
concise product keywords.
- Click product ASINs, option values, `Description`, `Features`, `Reviews`, `Back to Search`, `Back to Item`, or \
`Buy Now` only when listed above.
- Buy only when the selected product and options satisfy the shopping instruction.
Tool Definition
{tool}"""
_STEPPO_FORM = """
Call the tool as <tool_call>{"name": "env_step", "arguments": {"command": "..."}}</tool_call>."""
_STEPPO_NOW = "Current Observation\n{observation}\n"
_STEPPO_HISTORY = "Recent History\n{history}\n"
_STEPPO_ACTIONS = "Available Actions\n{actions}"

_REASONS = {
    NO_ACTION: "no action was found in the response",
    SEVERAL_ACTIONS: "the response holds more than one action",
    pages.NOT_AN_ACTION: "an action is search[<your query>] or click[<something on the page>]",
    pages.NO_SEARCH_BAR: "this page has no search bar",
    pages.EMPTY_QUERY: "the query is empty",
    pages.NOT_ON_PAGE: "nothing of that name can be clicked on this page",
}

_WORDS = re.compile(r"[a-z0-9]+(?:\.[0-9]+)?")
_FILLERS = frozenset({"a", "an", "and", "i", "in", "is", "of", "that", "the", "want", "with"})
COMPACT_PROBLEMS = (NO_ACTION, pages.NOT_AN_ACTION, pages.NO_SEARCH_BAR, pages.EMPTY_QUERY, pages.NOT_ON_PAGE)


@dataclass(frozen=True, slots=True)
class Read:
    """The content of a response.

    Attributes:
        command: ``search[...]`` or ``click[...]``, perhaps malformed inside; empty if there is none.
        problem: why there is none.
        detail: a sentence about the problem; may be empty.
    """

    command: str = ""
    problem: str = ""
    detail: str = ""


def read_command(response: str, page: Page, style: str) -> Read:
    if style == "steppo":
        return _read_call(response)
    spoken = read_thoughts(response).words
    if style == "compact":
        return Read(_from_place(spoken.strip(), page)) if spoken.strip() else Read(problem=NO_ACTION)
    found = _ACTION.findall(spoken)
    if len(found) != 1:
        return Read(problem=SEVERAL_ACTIONS if found else NO_ACTION)
    return Read(found[0].strip())


def first_observation(turn: ShopReply, style: str) -> str:
    return window(turn, style, "", (), 0)


def next_observation(turn: ShopReply, style: str, problem: str) -> str:
    """Return the text after an action in a growing dialogue: the page and its actions."""
    if style == "compact":
        return _compact_now(turn, problem)
    now = _STEPPO_NOW if style == "steppo" else _3SPO_NOW
    return now.format(observation=_seen(turn, style, problem)) + _listed(turn.page, style)


def window(turn: ShopReply, style: str, problem: str, history: Sequence[tuple[str, str]], steps: int) -> str:
    """Return the whole prompt after ``steps`` steps, with the last (observation, response) pairs, oldest first."""
    lines, goal = _history_lines(history, style, steps), turn.goal
    if style == "compact":
        limit = "" if goal.price_upper >= NO_LIMIT else f" under {goal.price_upper:.0f}"
        return " ".join([f"buy {compact_words(goal.instruction)}{limit}", ";", *lines, _compact_now(turn, problem)])
    task, now = request(goal), _seen(turn, style, problem)
    if style == "steppo":
        past = _STEPPO_HISTORY.format(history="\n".join(lines) or "None")
        body = _STEPPO_NOW.format(observation=now) + past + _listed(turn.page, style)
        return _STEPPO.format(task=task, now=body, tool=json.dumps(ENV_STEP.to_openai(), indent=2)) + _STEPPO_FORM
    begin, end = _3SPO_BEGIN.format(task=task), _listed(turn.page, style) + _3SPO_END
    if not steps:
        return begin + _3SPO_NOW.format(observation=now) + end
    past = _3SPO_HISTORY.format(
        steps=steps, length=len(lines), history="\n".join(lines), step=steps + 1, observation=now
    )
    return begin + past + end


def last_observation(score: Score, style: str) -> str:
    if style == "compact":
        return "bought right" if score.success else "bought wrong"
    return f"Thank you for shopping with us! Your score (min 0.0, max 1.0): {score.reward:.4g}"


def request(goal: Goal) -> str:
    """Return the instruction with its price limit: ``i need a mug, and price lower than 30.00 dollars``."""
    limit = "" if goal.price_upper >= NO_LIMIT else f", and price lower than {goal.price_upper:.2f} dollars"
    return goal.instruction + limit


def compact_words(text: str) -> str:
    """Return the words of a text in lower case, fillers and punctuation excluded."""
    return " ".join(word for word in _WORDS.findall(text.lower()) if word not in _FILLERS)


def _seen(turn: ShopReply, style: str, problem: str) -> str:
    back = _back(turn.page, style)
    texts = [back if text == pages.PREVIOUS else text for text in turn.page.texts]
    if style == "steppo":
        chosen = [f"{axis}: {value}" for axis, value in turn.state.chosen]
        page = "\n".join([*texts, *([f"Selected options: {', '.join(chosen)}"] if chosen else [])])
    else:
        page = " [SEP] ".join(f"'{text}'" for text in texts)
    page = cut_text(page, MAX_PAGE)
    return f"{problem}\n{page}" if problem else page


def problem_text(read: Read, problem: str, style: str) -> str:
    """Return the message about an action without effect; empty without a ``problem``."""
    if not problem:
        return ""
    if style == "compact":
        return f"invalid {problem}"
    reason = _REASONS.get(problem, "the tool call cannot be used")
    return f"Invalid action: {reason}{f' ({read.detail})' if read.detail else ''}."


def _listed(page: Page, style: str) -> str:
    previous, back = (f"click[{name.lower()}]" for name in (pages.PREVIOUS, _back(page, style)))
    actions = [back if action == previous else action for action in page.actions]
    if style == "steppo":
        return _STEPPO_ACTIONS.format(actions=cut_text("\n".join(actions), MAX_PAGE))
    return _3SPO_ACTIONS.format(actions=cut_text(",\n".join(f"'{action}'" for action in actions), MAX_PAGE))


def _history_lines(history: Sequence[tuple[str, str]], style: str, steps: int) -> list[str]:
    lines = []
    for number, (observation, response) in enumerate(history, start=steps - len(history) + 1):
        read = read_command(response, Page(pages.SEARCH, (), ()), style)
        action = (read.command or f"({read.problem})")[:MAX_HISTORY_ACTION]
        if style == "compact":
            lines.append(f"{action} ;")
        elif style == "steppo":
            lines.append(f"Step {number}: {action}")
        else:
            lines.append(f"[Observation {number}: '{_page_part(observation)}', Action {number}: '{action}']")
    return lines


def _page_part(observation: str) -> str:
    """Return the page of an earlier observation of the 3spo style, without its actions and the task around it."""
    _, _, rest = observation.rpartition(_3SPO_NOW.partition("{")[0])
    return rest.partition("\n" + _3SPO_ACTIONS.partition("\n")[0])[0].rstrip(".")


def _read_call(response: str) -> Read:
    parsed = read_response(response)
    if parsed.problem:
        return Read(problem=BAD_CALL, detail=feedback(parsed.problem))
    if len(parsed.calls) != 1:
        return Read(problem=SEVERAL_ACTIONS if parsed.calls else NO_ACTION)
    if fault := check_call(parsed.calls[0], [ENV_STEP]):
        return Read(problem=BAD_CALL, detail=feedback(fault))
    return Read(str(parsed.calls[0].arguments["command"]))


def _back(page: Page, style: str) -> str:
    """Return the name of the button ``< Prev``: on the pages below an item, StepPO calls it ``Back to Item``."""
    return pages.BACK_TO_ITEM if style == "steppo" and page.kind in pages.DETAILS else pages.PREVIOUS


# --- compact


def _compact_now(turn: ShopReply, problem: str) -> str:
    return f"{problem} {_compact_page(turn)}".strip()


def _compact_page(turn: ShopReply) -> str:
    page = turn.page
    if page.kind == pages.SEARCH:
        return "page search"
    if page.kind == pages.RESULTS:
        items = (f"{n} {compact_words(hit.title)} {_dollars(hit.price_tag)}" for n, hit in enumerate(page.items, 1))
        return " ".join(f"page results {turn.state.number} {' ; '.join(items)}".split())
    if page.kind == pages.ITEM:
        return " ".join(f"page item {_compact_item(turn)}".split())
    return f"page {page.kind.lower()} {compact_words(' '.join(page.texts[2:]))}".strip()


def _compact_item(turn: ShopReply) -> str:
    assert turn.page.product is not None
    shown, chosen = turn.page.product, dict(turn.state.chosen)
    axes = []
    for axis, values in shown.options.items():
        if axis in chosen:
            axes.append(f"; {compact_words(axis)} is {compact_words(chosen[axis])}")
        else:
            axes.append(f"; {compact_words(axis)} {' '.join(map(compact_words, values))}")
    title = "" if turn.state.chosen else f"{compact_words(shown.title)} {_dollars(shown.price_tag)}"
    return " ".join([title, *axes])


def _dollars(price_tag: str) -> str:
    return f"{float(price_tag.split()[0].lstrip('$')):.0f}"


def _from_place(command: str, page: Page) -> str:
    """Turn ``click[ 3 ]`` on a page of results into the click on its third product."""
    match = re.fullmatch(r"click\[\s*(\d{1,2})\s*\]", command)
    if match and page.kind == pages.RESULTS and 1 <= int(match[1]) <= len(page.items):
        return f"click[{page.items[int(match[1]) - 1].asin}]"
    return command
