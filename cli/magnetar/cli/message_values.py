"""Values that schemas make of messages, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from magnetar.client.messages import Message

_HEX_BYTES_MAX: Final = 64


def decoded_value(message: Message) -> tuple[str | None, Any]:
    """Returns what the schema makes of the content, as text and as JSON has it; None for plain bytes."""
    from magnetar.client.errors import ClientError

    if message.is_null:
        return None, None
    try:
        value = message.value
    except ClientError:
        return None, None
    if isinstance(value, bytes | memoryview):
        return None, None
    plain = _plain(value)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, default=str)
    return text, json.loads(json.dumps(plain, default=str))


def payload_text(payload: bytes) -> str:
    """Returns content as text; in hexadecimal if it is no text."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        more = "..." if len(payload) > _HEX_BYTES_MAX else ""
        return f"0x{payload[:_HEX_BYTES_MAX].hex()}{more}"


def _plain(value: Any) -> Any:
    """Returns a decoded value as JSON has it, as far as it goes."""
    if isinstance(value, bytes):
        return payload_text(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "key") and hasattr(value, "value"):
        return {"key": _plain(value.key), "value": _plain(value.value)}
    return value
