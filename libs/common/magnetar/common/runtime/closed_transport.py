"""Takes the place of a connection's transport once it is closed.

A connection and its client refer to each other until the next full collection of garbage. What they refer to
stays as long, and a transport with TLS holds up to 256 KiB of buffers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


class ClosedTransport(asyncio.Transport):
    """Is closed, and ignores whatever it is given."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def write(self, data: Any) -> None:
        pass

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_reading(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass
