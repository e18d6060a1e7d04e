"""Health pages of a broker's HTTP port while the broker waits for metadata: live, and not ready.

A liveness probe must not restart the process during that wait: metadata would be unavailable to the next
process as well.
"""

from __future__ import annotations

from magnetar.common.obs import health
from magnetar.common.obs.http_pages import HttpPages, text_page


class NoBrokerYet:
    """Serves health on the HTTP port until the broker takes it over, for a single use: `start`, then
    `close`.
    """

    def __init__(self, why: str) -> None:
        """`why` returns the reason why clients are refused."""
        self._pages = HttpPages(
            {
                health.LIVEZ: lambda: text_page(health.live()),
                health.READYZ: lambda: text_page(health.ready(why)),
            }
        )

    async def start(self, host: str, port: int) -> None:
        """Listen, unless port 0 picks a free one, which no probe can know yet. Raises OSError."""
        if port:
            await self._pages.start(host, port)

    async def close(self) -> None:
        """Release the port to the broker. Idempotent."""
        await self._pages.close()
