"""`magnetar bookie` as a process: the storage service and the common tasks of every service process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from magnetar.bookie.config import BookieConfig
from magnetar.bookie.service import Bookie
from magnetar.standalone.process_watch import watch_process
from magnetar.standalone.service import Address


class BookieProcess:
    """Implements `service.Service`."""

    def __init__(self, config: BookieConfig) -> None:
        self._bookie = Bookie(config)
        self._opened = AsyncExitStack()

    @property
    def shutdown_timeout_ms(self) -> int:
        return self._bookie.config.listener.shutdown_timeout_ms

    @property
    def addresses(self) -> Sequence[Address]:
        bookie = self._bookie
        found = [Address("gRPC", f"bookie://{bookie.address}", f"bookie {bookie.config.bookie_id}")]
        if bookie.http_url:
            found.append(Address("HTTP", bookie.http_url, "(/metrics, /health)"))
        found.append(Address("data", str(bookie.config.data_dir.absolute())))
        return found

    async def start(self) -> None:
        """See `Service.start`."""
        watch_process(self._opened)
        self._opened.push_async_callback(self._bookie.close)
        try:
            await self._bookie.start()
        except BaseException:
            await self._opened.aclose()
            raise

    async def close(self) -> None:
        """See `Service.close`."""
        await self._opened.aclose()
