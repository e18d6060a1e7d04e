"""Request paths, decoded as in Pulsar."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from magnetar.common.errors import InvalidName


def segments(raw_path: str) -> list[str]:
    """Return the decoded segments of a path; '+' is a space, as in Pulsar.

    Raises InvalidName when a segment is not percent-encoded UTF-8.
    """
    try:
        return [unquote_to_bytes(part.replace("+", " ")).decode() for part in raw_path.strip("/").split("/")]
    except UnicodeDecodeError as error:
        raise InvalidName("the path is not percent-encoded UTF-8") from error
