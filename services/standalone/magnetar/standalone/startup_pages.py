"""Pages of a broker's HTTP port while no broker runs behind it: live, and not ready.

A term of a broker in its cluster waits for metadata before it has anything to show. Whoever restarts
processes that do not answer must not restart this one for it: metadata would be away from the next one, too.
"""

from __future__ import annotations

from magnetar.common.obs import health
from magnetar.common.obs.http_pages import HttpPages, text_page


class NoBrokerYet:
    """Answers health on a port that the broker's own HTTP takes over. Use it once: `start`, then `close`."""

    def __init__(self, why: str) -> None:
        """`why`: the reason why clients are refused yet."""
        self._pages = HttpPages(
            {
                health.LIVEZ: lambda: text_page(health.live()),
                health.READYZ: lambda: text_page(health.ready(why)),
            }
        )

    async def start(self, host: str, port: int) -> None:
        """Listen, unless the port is any free one, which nobody knows yet. Raises OSError."""
        if port:
            await self._pages.start(host, port)

    async def close(self) -> None:
        """Leave the port to the broker; idempotent."""
        await self._pages.close()
