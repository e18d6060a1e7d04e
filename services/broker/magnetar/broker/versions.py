"""Protocol versions from which on clients understand unrequested commands of the broker.

Responses need no version check: a client that sends a request knows its response. AckResponse and
WatchTopicUpdate count as responses, since clients request them.
"""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Final

from magnetar.broker.client_endings import EndCode
from magnetar.broker.peer import Peer

CLOSE: Final = 5
"""Version of CloseProducer and CloseConsumer. An older client reconnects only when its connection is
closed.
"""
END_OF_TOPIC: Final = 9
"""Version of ReachedEndOfTopic."""
ACTIVE_CONSUMER_CHANGE: Final = 12
ENTRY_METADATA: Final = 18
"""Version of broker entry metadata, if the client also has the feature flag."""


def tell_closed(peer: Peer, frame: bytes) -> None:
    """Notifies a client that the broker closed its producer or consumer: by `frame`, or by closing an old
    client's connection.
    """
    if peer.protocol_version >= CLOSE:
        peer.write(frame)
    elif peer.connected:
        peer.close(
            "its producer or consumer is closed, which its version of the protocol has no word for",
            EndCode.OLD_PROTOCOL,
        )


SERVER_VERSION: Final = f"Magnetar {version_of('magnetar-broker')}"
"""Name and version that clients are told."""
