"""Closes connections whose peer may not be reading."""

from __future__ import annotations

import asyncio
from typing import Final

LAST_BYTES_S: Final = 5.0
"""Timeout for the peer to read pending data, in seconds."""


def close_soon(transport: asyncio.Transport) -> None:
    """Close the connection after pending data is sent, or after a timeout."""
    transport.close()
    if transport.get_write_buffer_size():
        asyncio.get_running_loop().call_later(LAST_BYTES_S, transport.abort)
