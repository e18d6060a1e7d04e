"""Interceptors: what an application adds to each message that is sent or received.

Producers and consumers call them in the order in which they were given, on the event loop. They must not
block; an exception of one is logged, and the message goes on as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from magnetar.client.errors import ClientError
from magnetar.client.messages import Message, MessageId, Outgoing

_log = logging.getLogger(__name__)

T = TypeVar("T")


class ProducerInterceptor:
    """Override what is needed."""

    def before_send(self, topic: str, message: Outgoing) -> Outgoing:
        """Returns the message to send to a topic or partition, which may be another one."""
        return message

    def on_sent(
        self, topic: str, message: Outgoing, message_id: MessageId | None, error: ClientError | None
    ) -> None:
        """The message is stored, with its id, or failed."""


class ConsumerInterceptor:
    """Override what is needed."""

    def before_consume(self, message: Message) -> Message:
        """Returns the message that the application gets."""
        return message

    def on_acknowledge(self, message: Message) -> None:
        """The application acknowledged a message."""

    def on_negative_acknowledge(self, message: Message) -> None:
        """The application wants a message again later."""

    def on_ack_timeout(self, topic: str, count: int) -> None:
        """So many entries of a topic were not acknowledged in time, and are delivered again."""


def guarded(call: Callable[..., T], fallback: T, *arguments: Any) -> T:
    """Returns the result of an interceptor, or `fallback` if it fails, which is logged."""
    try:
        return call(*arguments)
    except Exception:
        _log.exception("an interceptor failed")
        return fallback
