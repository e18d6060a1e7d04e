"""Clients whose topic leaves this broker: cut off at once, and told once it is known where the topic went.

In between what they send is ignored, as it is of any closed producer, and sent again to the next owner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from magnetar.broker.peer import Peer
from magnetar.broker.versions import tell_closed
from magnetar.common.metadata.values import BrokerRegistration

CloseFrame = Callable[[int, str | None, str | None], bytes]


@dataclass(frozen=True, slots=True)
class Departed:
    """A producer or a consumer that was cut off and has not heard of it."""

    peer: Peer
    id: int
    frame: CloseFrame

    def tell(self, owner: BrokerRegistration | None) -> None:
        """It is closed; the topic is at `owner`, or to be looked up again (None). PIP-307."""
        addresses = None if owner is None else _reached(owner, self.peer.listener)
        if addresses is None:
            tell_closed(self.peer, self.frame(self.id, None, None))
            return
        urls = addresses.broker_url or None, addresses.broker_url_tls or None
        tell_closed(self.peer, self.frame(self.id, *urls))


def _reached(owner: BrokerRegistration, listener: str | None) -> BrokerRegistration.Addresses | None:
    """Where a client reaches the owner; None where that is not certain, and a lookup is quicker than a guess.

    A client that has named no listener to us may have come by any of them.
    """
    if listener:
        return owner.listeners.get(listener)
    return owner.addresses if listener == "" or not owner.listeners else None
