"""Clients of a topic that moves to another broker: closed at once, notified when the new owner is known.

Messages that they send in between are ignored, like those of any closed producer; clients resend them to the
new owner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from magnetar.broker.peer import Peer
from magnetar.broker.versions import tell_closed
from magnetar.common.metadata.values import BrokerRegistration

CloseFrame = Callable[[int, str | None, str | None], bytes]


@dataclass(frozen=True, slots=True)
class ClosedClient:
    """A producer or consumer that the broker has closed and whose client is not notified yet."""

    peer: Peer
    id: int
    frame: CloseFrame

    def tell(self, owner: BrokerRegistration | None) -> None:
        """Notifies the client that it is closed, with the address of `owner`, or without one to look the
        topic up. PIP-307.
        """
        addresses = None if owner is None else _reached(owner, self.peer.listener)
        if addresses is None:
            tell_closed(self.peer, self.frame(self.id, None, None))
            return
        urls = addresses.broker_url or None, addresses.broker_url_tls or None
        tell_closed(self.peer, self.frame(self.id, *urls))


def _reached(owner: BrokerRegistration, listener: str | None) -> BrokerRegistration.Addresses | None:
    """The addresses at which a client reaches the owner; None when they are uncertain and the client has to
    look the topic up.

    A client that named no listener may have connected through any of them.
    """
    if listener:
        return owner.listeners.get(listener)
    return owner.addresses if listener == "" or not owner.listeners else None
