"""Closing a connection whose other side may not be reading."""

from __future__ import annotations

import asyncio
from typing import Final

LAST_BYTES_S: Final = 5.0
"""How long the other side may take for what is on its way to it."""


def close_soon(transport: asyncio.Transport) -> None:
    """Close it once what was written has left, or, when that is not taken, after a moment."""
    transport.close()
    if transport.get_write_buffer_size():
        asyncio.get_running_loop().call_later(LAST_BYTES_S, transport.abort)
