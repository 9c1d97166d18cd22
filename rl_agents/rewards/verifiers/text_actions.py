"""Commands that agents of text environments write as plain text: ``search[red mug]``, ``click[ 3 ]``, ``look``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rl_agents.rewards.verifiers.base import Verdict, demonstrated
from rl_agents.rewards.verifiers.compare import difference
from rl_agents.rewards.verifiers.tool_calls import ToolCallVerifier
from rl_agents.tools.calls import Response
from rl_agents.traces.turns import Turn

_TAGGED = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_BRACKETS = re.compile(r"(\w+)\s*\[(.*)\]", re.DOTALL)
#: Commands whose argument is the agent's own words. All others name a thing, and another name is another thing.
FREE_TEXT = frozenset({"search"})


@dataclass(frozen=True, slots=True)
class TextAction:
    """A command and its argument, in lower case with single blanks; ``text`` is empty where there are no brackets."""

    name: str
    text: str = ""


def read_text_action(content: str) -> TextAction:
    """Read what stands inside the one ``<action>`` tag, or the whole text where there is none, or more than one.

    >>> read_text_action("<action>search[Red  mug]</action>")
    TextAction(name='search', text='red mug')
    """
    tagged = _TAGGED.findall(content)
    words = " ".join((tagged[0] if len(tagged) == 1 else content).lower().split())
    match = _BRACKETS.fullmatch(words)
    return TextAction(match[1], match[2].strip()) if match else TextAction(words)


@dataclass(frozen=True, slots=True)
class TextActionVerifier:
    """The same command, case and blanks aside; the words of a search need only be similar.

    Tool calls are compared as `ToolCallVerifier` does.

    Attributes:
        threshold: word similarity from which two searches count as equivalent, as for the paper's search steps
            (`rl_agents.rewards.verifiers.compare.difference`).
    """

    threshold: float = 0.3

    def score(self, turn: Turn, response: Response) -> Verdict:
        if turn.calls or response.calls:
            return ToolCallVerifier(self.threshold).score(turn, response)
        expected, actual = read_text_action(demonstrated(turn).content), read_text_action(response.content)
        if expected.name == actual.name and expected.name in FREE_TEXT:
            found = difference(expected.text, actual.text, self.threshold, expected.name)
            return Verdict(float(not found), found or "an equivalent search")
        same = expected == actual
        return Verdict(float(same), "the same command" if same else "another command")
