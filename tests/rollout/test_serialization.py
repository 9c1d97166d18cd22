"""What an environment's process sends: plain data arrives as it is, and nothing of it is run where it arrives."""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import threading
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout.test_env_worker import pool_of

from rl_agents.rollout.branching import Drawn, copy_of, restore
from rl_agents.rollout.env_calls import EnvFailure, read_step
from rl_agents.rollout.serialization import Answer, Sealed, opened

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def sent(result: Any) -> Any:
    return Answer.from_bytes(Answer(result).to_bytes()).result


@given(PLAIN)
def test_plain_data_arrives_as_it_is(value: Any) -> None:
    assert sent(value) == value and repr(sent([value])) == repr([value]), "types, too"
    assert sent((value, {})) == (value, {}), "what reset and step return"


def test_numpys_values_and_subclasses_arrive_as_pythons() -> None:
    values = (np.float32(0.1), np.int64(3), np.bool_(True), np.arange(4).reshape(2, 2), np.str_("x"), OrderedDict(a=1))
    got = sent(values)
    assert got == (float(np.float32(0.1)), 3, True, [[0, 1], [2, 3]], "x", {"a": 1})
    assert [type(each) for each in got] == [float, int, bool, list, str, dict]
    assert math.isnan(sent(math.nan)) and sent("\ud800") == "\ud800"


def test_what_is_no_plain_data_stays_where_it_is() -> None:
    info = sent({"lock": threading.Lock(), "anchor": object(), "valid": True, (1, 2): "a pair"})
    assert info == {"lock": {"unsent": "_thread.lock"}, "anchor": {"unsent": "builtins.object"}, "valid": True}
    with pytest.raises(EnvFailure, match=r"env_garbage: info\['anchor'\] is dict .*builtins.object"):
        read_step(("x", 0.0, False, False, info))
    assert read_step(("x", 0.0, False, False, {"lock": info["lock"]})).observation == "x"


class Harmful:
    """Would make a folder where it is unpickled."""

    def __init__(self, folder: Any) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.folder,)


def test_nothing_is_unpickled_where_it_arrives(tmp_path) -> None:
    harmful = Harmful(tmp_path / "made")
    for data in (Answer(harmful).to_bytes(), Answer(Sealed.of(harmful)).to_bytes(), pickle.dumps(Answer(harmful))):
        try:
            Answer.from_bytes(data)
        except ValueError as error:
            assert data[:1] != b"[", error
    assert not (tmp_path / "made").exists()
    for garbage in (b'{"pickle": "x"}', b"[1, 2]", b'["x", "sealed", "", false, null]', b"[" * 100_000):
        with pytest.raises(ValueError):
            Answer.from_bytes(garbage)


def test_a_snapshot_goes_through_sealed_and_is_opened_where_its_environment_runs() -> None:
    """Taken in a process, restored in another and, as by a runner that has none, here."""
    shown = []

    async def work() -> None:
        pool, here = pool_of("Drawing", "process"), pool_of("Drawing", "inline")
        first, second, third = await pool.take(), await pool.take(), await here.take()
        guard = pool.guard(first, "task-3", 5, 20.0)
        await guard.call(first.reset, seed=5, options={"task_id": "task-3"})
        await guard.call(first.step, "one")
        copy = await copy_of(first, guard)
        assert isinstance(copy, Drawn) and isinstance(copy.snapshot, Sealed) and isinstance(copy.generators, Sealed)
        copy = pickle.loads(pickle.dumps(copy))  # as it travels by way of the driver
        shown.append(await guard.call(first.step, "two"))
        for env, its in ((second, pool), (third, here), (first, pool)):
            guard = its.guard(env, "task-3", 5, 20.0)
            await restore(env, guard, copy)
            shown.append(await guard.call(env.step, "two"))
        await pool.discard(first)
        await pool.discard(second)
        await here.discard(third)

    asyncio.run(work())
    assert shown[0] == shown[1] == shown[2] == shown[3] and opened("x") == "x"
