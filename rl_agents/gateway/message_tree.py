"""Where in a session's histories a request stands: a tree of messages, and the calls that were asked at its places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rl_agents.chat.messages import Message
from rl_agents.gateway.canonical import call_ids, message_key
from rl_agents.gateway.recorded_call import Made


@dataclass(eq=False, slots=True)
class Place:
    """A point of a history, after one of its messages.

    Attributes:
        before: the place one message earlier.
        message: what was said there; None at the beginning.
        depth: messages up to here.
        by: the call whose answer the message is; None: somebody else's words.
        said: what follows in others' words, by key.
        answers: places after the answers that were given here, by every form that a client may make of them.
        calls: the calls asked here, in their order.
        trail: the point of the same history whatever its system prompt, tools and thoughts; None: not known yet.
    """

    before: Place | None = None
    message: Message | None = None
    depth: int = 0
    by: Made | None = None
    said: dict[str, Place] = field(default_factory=dict)
    answers: dict[str, list[Place]] = field(default_factory=dict)
    calls: list[Made] = field(default_factory=list)
    trail: Trail | None = None

    def history(self) -> list[Message]:
        """Return the messages up to here."""
        messages: list[Message] = []
        place: Place | None = self
        while place is not None and place.message is not None:
            messages.append(place.message)
            place = place.before
        return messages[::-1]

    def last_answer(self) -> Place | None:
        """Return the last place up to here that follows a call's answer."""
        place: Place | None = self
        while place is not None and place.by is None:
            place = place.before
        return place

    def go(self, messages: Sequence[Message], as_sent: bool) -> Place:
        """Return the deepest known place on the way of these messages."""
        places = [self]
        for message in messages:
            key = message_key(message, as_sent)
            following = [following for place in places for following in place.next(message, key)]
            if not following:
                break
            places = following
        return max(places, key=lambda place: -1 if place.by is None else place.by.order)

    def next(self, message: Message, key: str) -> list[Place]:
        """Return the places after one more message: several where answers have the same text."""
        found = self.answers.get(key, []) if message["role"] == "assistant" else []
        if len(found) > 1:
            found = _meant(found, message)
        return [*found, *([self.said[key]] if key in self.said else [])]

    def say(self, messages: Sequence[Message], as_sent: bool) -> Place:
        """Return the place after these messages, none of which is an answer of ours; makes it where it is new."""
        place = self
        for message in messages:
            key = message_key(message, as_sent)
            if key not in place.said:
                place.said[key] = Place(place, message, place.depth + 1)
            place = place.said[key]
        return place

    def lay(self, start: Trail, answers: Sequence[str], call: Made) -> None:
        """Remember an answered call on the trail of its history, and by all forms of its answer."""
        new: list[Place] = []
        place: Place = self
        while place.trail is None and place.before is not None:
            new.append(place)
            place = place.before
        trail = place.trail = place.trail or start
        for later in reversed(new):
            assert later.message is not None
            trail = later.trail = trail.next(message_key(later.message, False))
        after = next((trail.following[key] for key in answers if key in trail.following), Trail(trail))
        for key in answers:
            trail.following.setdefault(key, after)
        passed: Trail | None = after
        while passed is not None and passed is not start:
            passed.latest = call
            passed = passed.before


@dataclass(eq=False, slots=True)
class Trail:
    """A point of a history whatever the system prompt, the tools and the thoughts; to know rewritten histories by.

    Attributes:
        latest: the call answered last among those whose history leads through here.
    """

    before: Trail | None = None
    following: dict[str, Trail] = field(default_factory=dict)
    latest: Made | None = None

    def next(self, key: str) -> Trail:
        """Return the point one message later; makes it where it is new."""
        if key not in self.following:
            self.following[key] = Trail(self)
        return self.following[key]

    def go(self, messages: Sequence[Message]) -> Trail:
        """Return the deepest known point on the way of these messages."""
        trail = self
        for message in messages:
            further = trail.following.get(message_key(message, False))
            if further is None:
                break
            trail = further
        return trail


def _meant(places: list[Place], message: Message) -> list[Place]:
    """Of answers with the same text keep those that the message can only mean: same ids of calls, same thoughts."""
    ids = call_ids(message)
    by_ids = [place for place in places if ids and place.message and call_ids(place.message) == ids]
    thoughts = str(message.get("reasoning_content") or "").strip()
    same = [p for p in places if thoughts and p.message and p.message.get("reasoning_content", "").strip() == thoughts]
    return by_ids or same or places
