"""Signals inside an event loop."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from rl_agents.interrupts import event_loop


async def interrupted(error: type[BaseException]) -> None:
    async def driver() -> None:
        raise error

    tasks = [asyncio.create_task(driver())]
    await asyncio.sleep(0.01)
    tasks.clear()


@pytest.mark.parametrize(("error", "complaints"), [(KeyboardInterrupt, 0), (ValueError, 1)])
def test_a_task_that_a_signal_ends_leaves_no_traceback(error, complaints, caplog) -> None:
    runner = event_loop()
    with caplog.at_level(logging.ERROR, logger="asyncio"):
        if error is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                runner.run(interrupted(error))
        else:
            runner.run(interrupted(error))
        runner.close()
        gc.collect()
    assert sum("never retrieved" in record.message for record in caplog.records) == complaints
