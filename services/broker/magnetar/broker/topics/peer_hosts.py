"""Hosts that clients connect from: limits that count clients by address compare these."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from magnetar.broker.peer import Peer


def host_of(peer: Peer) -> str:
    """The address of a client without its port."""
    return peer.address.rpartition(":")[0]


def count_from_host_of(newcomer: Peer, present: Iterable[Peer], most: int) -> int:
    """Counts the clients that connect from the newcomer's host, up to `most`."""
    host = host_of(newcomer)
    return sum(1 for _ in islice((peer for peer in present if host_of(peer) == host), most))
