"""Token ids and log-probabilities as bytes; a prompt is stored as its difference from the call that it extends.

A *sequence* is the ids of a call's prompt and response, four little-endian bytes per id. For a call whose prompt begins
like its parent's sequence, the number of shared ids and the remaining ids are stored. Any other prompt is stored once
in the table ``prompts``, for all calls that begin with it.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from array import array
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from rl_agents.errors import InputError
from rl_agents.store.records import Call

#: Limit of the recent calls' sequences kept in memory, and Python's overhead of each, in bytes.
RECENT_BYTES, OVERHEAD = 64_000_000, 250
BYTES_PER_ID = 4
COLUMNS = "id, parent, policy_version, finish_reason, seed, prompt, shared, rest, response, logprobs, version_spans"
FIND = "SELECT parent, prompt, shared, rest, response FROM calls WHERE id = ?"
LENGTH = "SELECT prompt_tokens + response_tokens FROM calls WHERE id = ?"
INSERT = (
    "INSERT INTO calls (number, id, parent, policy_version, finish_reason, seed, prompt_tokens, response_tokens, "
    "prompt, shared, rest, response, logprobs, version_spans) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING"
)

if sys.byteorder != "little":  # the byte order of the file is fixed
    raise ImportError("the pool needs a little-endian machine")


def as_sequence(ids: Sequence[int]) -> bytes:
    """Return ids as a sequence. Raises `InputError`: an id is not an integer from 0 to 2³² − 1."""
    try:
        return array("I", ids).tobytes()
    except (OverflowError, TypeError) as error:
        raise InputError(f"token ids are whole numbers from 0 to 2**32 - 1: {error}") from None


def as_ids(sequence: bytes) -> list[int]:
    """Inverse of `as_sequence`."""
    return array("I", sequence).tolist()


def pack(sequence: bytes) -> bytes:
    """Return a sequence with as many bytes per id (1 to 4, stored in the first byte) as its largest id needs."""
    if not sequence:
        return b""
    ids = np.frombuffer(sequence, np.uint8).reshape(-1, BYTES_PER_ID)
    largest = int(np.frombuffer(sequence, np.uint32).max())
    width = max(1, (largest.bit_length() + 7) // 8)
    return bytes((width,)) + ids[:, :width].tobytes()


def unpack(blob: bytes) -> bytes:
    """Inverse of `pack`. Raises `InputError`: the bytes are damaged."""
    if not blob:
        return b""
    width, size = blob[0], len(blob) - 1
    if not 1 <= width <= BYTES_PER_ID or size % width:
        raise InputError(f"packed token ids are damaged ({size} bytes, {width} per id)")
    ids = np.zeros((size // width, BYTES_PER_ID), np.uint8)
    ids[:, :width] = np.frombuffer(blob, np.uint8, offset=1).reshape(-1, width)
    return ids.tobytes()


def shared_ids(before: bytes, prompt: bytes) -> int:
    if prompt.startswith(before):
        return len(before) // BYTES_PER_ID
    size = min(len(before), len(prompt)) // BYTES_PER_ID
    unequal = np.frombuffer(before, np.uint32, size) != np.frombuffer(prompt, np.uint32, size)
    return int(unequal.argmax()) if unequal.any() else size


class Calls:
    """Writes and reads the table ``calls`` of an open store.

    Sequences of recent calls are kept in memory, at most `RECENT_BYTES`; older ones are read again.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._recent: OrderedDict[int, bytes] = OrderedDict()
        self._size = 0

    def insert(self, number: int, call: Call) -> None:
        """Add a call as row ``number``; do nothing if its id exists.

        Raises:
            InputError: one of its values cannot be stored.
        """
        prompt, response = as_sequence(call.prompt_ids), as_sequence(call.response_ids)
        shared = self._known(call) if call.shared else self._compared(call, prompt)
        whole = None if shared else self._prompt(number, prompt)
        rest = pack(prompt[(shared - call.shared) * BYTES_PER_ID :]) if shared else b""
        row = (
            number, call.id, call.parent, call.policy_version, call.finish_reason, call.seed,
            call.shared + len(call.prompt_ids), len(call.response_ids), whole, shared, rest, pack(response),
            array("f", call.logprobs).tobytes(), json.dumps(call.version_spans) if call.version_spans else None,
        )  # fmt: skip
        if self._connection.execute(INSERT, row).rowcount == 1 and not call.shared:
            self._keep(call.id, prompt + response)

    def _compared(self, call: Call, prompt: bytes) -> int:
        """Return how many ids the prompt shares with its parent's sequence; 0 if they are less than half of it."""
        before = self.sequence(call.parent) if call.parent else None
        shared = shared_ids(before, prompt) if before else 0
        return 0 if 2 * shared * BYTES_PER_ID < len(prompt) else shared

    def _known(self, call: Call) -> int:
        """Return `Call.shared`; raise `InputError` if the parent's sequence is not here or has another length."""
        found = self._connection.execute(LENGTH, (call.parent,)).fetchone()
        if found is None or found[0] != call.shared:
            raise InputError(f"call {call.id} continues {call.shared} ids of call {call.parent}, which are not here")
        return call.shared

    def whole(self, row: tuple[int, int, int, str, int, int | None, int, bytes, bytes, bytes, str | None]) -> Call:
        name, parent, version, finish, seed, prompt, shared, rest, response, logprobs, spans = row
        ids = self._opening(parent, prompt, shared, rest)
        answer = unpack(response)
        self._keep(name, ids + answer)
        versions = tuple((number, count) for number, count in json.loads(spans)) if spans else ()
        return Call(
            name, parent, as_ids(ids), as_ids(answer), array("f", logprobs).tolist(), version, finish, seed, versions
        )

    def sequence(self, call: int) -> bytes | None:
        """Return prompt and response of a stored call; None if there is no such call."""
        if (known := self._recent.get(call)) is not None:
            self._recent.move_to_end(call)
            return known
        later: list[tuple[int, bytes, bytes]] = []  # shared, rest, response: from this call up to the first known one
        name, found = call, None
        while found is None:
            row = self._connection.execute(FIND, (name,)).fetchone()
            if row is None:
                if later:
                    raise InputError(f"the pool is damaged: call {name}, which call {call} continues, is missing")
                return None
            parent, prompt, shared, rest, response = row
            if shared:
                later.append((shared, rest, response))
                name, found = parent, self._recent.get(parent)
            else:
                found = self._prompt_at(prompt) + unpack(response)
        for shared, rest, response in reversed(later):
            found = found[: shared * BYTES_PER_ID] + unpack(rest) + unpack(response)
        self._keep(call, found)
        return found

    def forget(self) -> None:
        """Drop the sequences in memory, since the file does not contain them after a rollback."""
        self._recent.clear()
        self._size = 0

    def _opening(self, parent: int, prompt: int | None, shared: int, rest: bytes) -> bytes:
        if not shared:
            return self._prompt_at(prompt)
        before = self.sequence(parent)
        if before is None or len(before) < shared * BYTES_PER_ID:
            raise InputError(f"the pool is damaged: call {parent} is missing or too short")
        return before[: shared * BYTES_PER_ID] + unpack(rest)

    def _prompt(self, number: int, prompt: bytes) -> int:
        digest = hashlib.sha256(prompt).digest()[:16]
        add = "INSERT INTO prompts (number, digest, ids) VALUES (?, ?, ?) ON CONFLICT (digest) DO NOTHING"
        if self._connection.execute(add, (number, digest, pack(prompt))).rowcount == 1:
            return number
        return int(self._connection.execute("SELECT number FROM prompts WHERE digest = ?", (digest,)).fetchone()[0])

    def _prompt_at(self, number: int | None) -> bytes:
        row = self._connection.execute("SELECT ids FROM prompts WHERE number = ?", (number,)).fetchone()
        if row is None:
            raise InputError(f"the pool is damaged: prompt {number} is missing")
        return unpack(row[0])

    def _keep(self, call: int, sequence: bytes) -> None:
        if (known := self._recent.pop(call, None)) is not None:
            self._size -= len(known) + OVERHEAD
        self._recent[call] = sequence
        self._size += len(sequence) + OVERHEAD
        while self._size > RECENT_BYTES and len(self._recent) > 1:
            self._size -= len(self._recent.popitem(last=False)[1]) + OVERHEAD
