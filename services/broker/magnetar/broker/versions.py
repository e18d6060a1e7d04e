"""Since which version of the protocol clients know what the broker sends of its own accord.

Answers need none of this: a client that asks knows the answer. AckResponse and WatchTopicUpdate are answers
in that sense, too, since clients ask for them.
"""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Final

from magnetar.broker.peer import Peer

CLOSE: Final = 5
"""CloseProducer and CloseConsumer. An older client looks again only when its connection is closed."""
END_OF_TOPIC: Final = 9
"""ReachedEndOfTopic."""
ACTIVE_CONSUMER_CHANGE: Final = 12
ENTRY_METADATA: Final = 18
"""Broker entry metadata, if the client also has the feature flag."""


def tell_closed(peer: Peer, frame: bytes) -> None:
    """Tell a client that the broker closed its producer or consumer: with `frame`, where it knows that."""
    if peer.protocol_version >= CLOSE:
        peer.write(frame)
    elif peer.connected:
        peer.close("its producer or consumer is closed, which its version of the protocol has no word for")


SERVER_VERSION: Final = f"Magnetar {version_of('magnetar-broker')}"
"""Name and version that clients are told."""
