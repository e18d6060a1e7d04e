"""A metadata session that is replaced by a new one when it ends."""

from __future__ import annotations

import asyncio

from magnetar.common.metadata.store import MetadataStore, Session


class SessionHolder:
    """Holds the live session. Keys of an earlier session ended with it."""

    def __init__(self, metadata: MetadataStore, ttl_ms: int) -> None:
        self._metadata = metadata
        self._ttl_ms = ttl_ms
        self._session: Session | None = None
        self._making = asyncio.Lock()

    async def get(self) -> Session:
        """Returns the session, starting one if needed. Raises MetadataError."""
        async with self._making:
            # Checked here because a task waiting for the end would run only when all others are idle, while a
            # refused worker goes to its next ledger at once.
            if self._session is None or self._session.has_ended:
                self._session = await self._metadata.session(self._ttl_ms)
            return self._session

    async def close(self) -> None:
        """Ends the session and its keys; idempotent. Raises MetadataError if the outcome is unknown."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
