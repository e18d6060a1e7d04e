"""Errors of writes to topics. Messages say what to do next."""

from __future__ import annotations

from typing import Final

from magnetar.client.errors import ClientError
from magnetar.common.errors import MagnetarError

WITHOUT_DEDUPLICATION: Final = (
    "the broker does not deduplicate messages, so rows could be published twice when a task is tried again. "
    "Switch it on for the namespace (magnetar admin namespaces set-deduplication --enable), or accept that "
    "with the option deduplication=none"
)


class SinkError(MagnetarError):
    """Rows cannot be written."""


class NotDeduplicated(SinkError, ClientError):
    """The topic takes the same sequence id twice: a task that is tried again would publish rows again."""


class BadColumns(SinkError):
    """The frame has columns that cannot be written, or not those that are needed."""


class BadRow(SinkError):
    """A row has values that no message can have."""


class BadOption(SinkError):
    """An option is not known, or its value is wrong."""
