"""One metadata session for as long as it lasts, then the next one."""

from __future__ import annotations

import asyncio

from magnetar.common.metadata.store import MetadataStore, Session
from magnetar.common.runtime.task_owner import TaskOwner


class SessionHolder:
    """Gives out the session that lives now. What was kept in an earlier one is gone with it."""

    def __init__(self, metadata: MetadataStore, ttl_ms: int) -> None:
        self._metadata = metadata
        self._ttl_ms = ttl_ms
        self._session: Session | None = None
        self._making = asyncio.Lock()
        self._tasks = TaskOwner("auto-recovery's session")

    async def get(self) -> Session:
        """The session, made now if there is none. Raises MetadataError."""
        async with self._making:
            if self._session is None:
                session = await self._metadata.session(self._ttl_ms)
                self._session = session
                self._tasks.spawn(self._await_end(session), "end")
            return self._session

    async def close(self) -> None:
        """End the session and with it its keys; idempotent. Raises MetadataError when that can't be known."""
        await self._tasks.close()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _await_end(self, session: Session) -> None:
        await session.expired()
        if self._session is session:
            self._session = None
