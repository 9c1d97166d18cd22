"""A process group of its own between a sender and engines, on CPUs; every wait in it ends at a deadline.

No part of torch's default group, which vLLM and RLlib use themselves: this one can be closed and made again.
"""

from __future__ import annotations

import socket
import time
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import BroadcastOptions, PrefixStore, ProcessGroupGloo, TCPStore

#: Where members look for each other if all live on this machine.
LOOPBACK = "127.0.0.1"
#: Seconds to reach a meeting's address.
CONNECT_S = 10.0


class Meeting:
    """The sender's address book, through which the members of one group find each other.

    Closing it makes whoever still waits for a member give up at once.
    """

    def __init__(self, address: str, world_size: int, deadline_s: float) -> None:
        """Listen on a free port of ``address`` only."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listening = socket.socket(family)
        listening.bind((address, 0))
        self.address, self.port = address, int(listening.getsockname()[1])
        self.world_size, self.deadline_s = world_size, deadline_s
        self._store: Any = TCPStore(
            address, self.port, world_size, is_master=True, timeout=timedelta(seconds=deadline_s),
            wait_for_workers=False, master_listen_fd=listening.detach(),
        )  # fmt: skip

    def close(self) -> None:
        """Stop listening."""
        self._store = None


class Group:
    """One member of a group."""

    def __init__(self, address: str, port: int, rank: int, world_size: int, deadline_s: float) -> None:
        """Meet all other members.

        Raises:
            RuntimeError: one did not come within ``deadline_s``, or the meeting was closed.
        """
        timeout = timedelta(seconds=deadline_s)
        store = _entered(address, port, world_size, deadline_s)
        options = ProcessGroupGloo._Options()
        options._devices = [ProcessGroupGloo.create_device(hostname=_own_address(address))]
        options._timeout = timeout
        self.rank = rank
        self.begin(deadline_s)
        self._group: Any = ProcessGroupGloo(PrefixStore("weights", store), rank, world_size, options)

    def begin(self, deadline_s: float) -> None:
        """An update begins, which has ``deadline_s`` for all its broadcasts together."""
        self._until = time.monotonic() + deadline_s

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Send ``tensor`` (rank 0) or receive into it; nothing happens for an empty one.

        Raises:
            RuntimeError: a member is gone, or the deadline has passed.
        """
        if not tensor.numel():
            return
        options = BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        options.timeout = timedelta(seconds=max(0.1, self._until - time.monotonic()))
        self._group.broadcast([tensor], options).wait()

    def close(self) -> None:
        """Drop all connections; whoever waits for this member fails at once."""
        self._group = None


def _entered(address: str, port: int, world_size: int, deadline_s: float) -> Any:
    """Return the address book. A meeting listens before anybody hears of it: who is refused comes too late."""
    connect_s = min(deadline_s, CONNECT_S)
    try:
        socket.create_connection((address, port), timeout=connect_s).close()  # torch's own store would try on and on
    except OSError as error:
        raise RuntimeError(f"the meeting at {address}:{port} is closed ({error})") from None
    store = TCPStore(
        address, port, world_size, is_master=False, timeout=timedelta(seconds=connect_s), wait_for_workers=False
    )
    store.set_timeout(timedelta(seconds=deadline_s))
    return store


def _own_address(other: str) -> str:
    """Return the address of this machine from which ``other`` is reached; no packet is sent."""
    with socket.socket(socket.AF_INET6 if ":" in other else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))
        return str(probe.getsockname()[0])
