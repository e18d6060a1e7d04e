"""One metadata session for as long as it lasts, then the next one."""

from __future__ import annotations

import asyncio

from magnetar.common.metadata.store import MetadataStore, Session


class SessionHolder:
    """Gives out the session that lives now. What was kept in an earlier one is gone with it."""

    def __init__(self, metadata: MetadataStore, ttl_ms: int) -> None:
        self._metadata = metadata
        self._ttl_ms = ttl_ms
        self._session: Session | None = None
        self._making = asyncio.Lock()

    async def get(self) -> Session:
        """The session, made now if there is none. Raises MetadataError."""
        async with self._making:
            # Checked here: a task that waits for the end would run only when all others are idle,
            # and a worker that is refused goes to its next ledger at once.
            if self._session is None or self._session.has_ended:
                self._session = await self._metadata.session(self._ttl_ms)
            return self._session

    async def close(self) -> None:
        """End the session and with it its keys; idempotent. Raises MetadataError when that can't be known."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
