"""Leader election: one ephemeral key, watched by all candidates.

A session is a hint, so two leaders may exist for a while. A leader includes `Leadership.check` in its
transactions, or does only work that two leaders may do at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from magnetar.common.errors import (
    DataCorruption,
    MetadataError,
    UnknownOutcome,
    UnsupportedFormat,
    VersionMismatch,
)
from magnetar.common.metadata.store import ABSENT, Check, MetadataStore, Session
from magnetar.common.metadata.values import Leader, decode, encode
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock

log = get_logger(__name__)

RETRY_AFTER_S: Final = 0.5
RETRY_AFTER_MAX_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Leadership:
    """A leadership that was won."""

    key: str
    version: int
    epoch: int
    """Leader epoch, above those of all earlier leaders."""

    def check(self) -> Check:
        """Returns the guard that this leader includes in each transaction."""
        return Check(self.key, self.version)


class Candidate:
    """Competes for the leadership `key` repeatedly; runs `lead` while it is held.

    `lead` is cancelled when the session ends. If it returns, or raises VersionMismatch of the leadership's
    key or another MetadataError, the leadership is given up and the candidate competes again after a pause.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        key: str,
        session: Callable[[], Awaitable[Session]],
        clock: Clock,
        candidate: Leader,
        lead: Callable[[Leadership], Awaitable[None]],
    ) -> None:
        """Creates a candidate. `session` returns the live session. `candidate` is the key's value while this
        process leads, without epoch and time.
        """
        self._metadata = metadata
        self._key = key
        self._session = session
        self._clock = clock
        self._candidate = candidate
        self._id = candidate.id
        self._lead = lead

    async def run(self) -> None:
        """Competes until cancelled."""
        wait_s = RETRY_AFTER_S
        while True:
            try:
                session = await self._session()
                leadership = await self._stand(session)
                if leadership is not None:
                    await self._hold(session, leadership)
                wait_s = RETRY_AFTER_S
            except MetadataError as error:
                log.debug("no election now", reason=str(error))
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_AFTER_MAX_S)

    async def _stand(self, session: Session) -> Leadership | None:
        """Tries to win, or waits until the current leader's key is gone."""
        watch = self._metadata.watch(self._key)
        try:
            listing = await self._metadata.children(self._key)
            holder = next((item for item in listing.items if item.key == self._key), None)
            if holder is not None and self._is_ours(holder.value):
                # The key is from an earlier run of this process, or from a late claim that had been given up.
                await self._metadata.delete(self._key, holder.version)
                return None
            if holder is None:
                # Every earlier leader's key was written at a revision above the one that leader had listed.
                return await self._claim(session, epoch=listing.revision + 1)
            async for event in watch:
                if event.key == self._key and event.value is None and event.version > listing.revision:
                    return None
            raise MetadataError("the metadata store is closed")
        finally:
            await watch.aclose()

    def _is_ours(self, value: bytes) -> bool:
        try:
            return decode(Leader, value).id == self._id
        except (DataCorruption, UnsupportedFormat) as error:
            log.error("the holder of an office cannot be read", key=self._key, reason=str(error))
            return False

    async def _claim(self, session: Session, epoch: int) -> Leadership | None:
        claim = Leader()
        claim.CopyFrom(self._candidate)
        claim.epoch, claim.since_ms = epoch, self._clock.wall_ms()
        value = encode(claim)
        try:
            version = await session.put_ephemeral(self._key, value, ABSENT)
        except VersionMismatch:
            return None
        except UnknownOutcome:
            found = await self._metadata.get(self._key)
            if found is None or found.value != value:
                raise
            version = found.version
        return Leadership(self._key, version, epoch)

    async def _hold(self, session: Session, leadership: Leadership) -> None:
        log.info("elected", office=self._key, leader=self._id, epoch=leadership.epoch)
        leading = asyncio.ensure_future(self._lead(leadership))
        expired = asyncio.ensure_future(session.expired())
        try:
            await asyncio.wait((leading, expired), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leading, expired):
                task.cancel()
            _, error = await asyncio.gather(expired, leading, return_exceptions=True)
        if isinstance(error, asyncio.CancelledError):
            log.info("the session of this leader is over", office=self._key, leader=self._id)
            return
        await self._resign(leadership)
        if isinstance(error, VersionMismatch) and error.key == self._key:
            log.info("another one leads", office=self._key, former_leader=self._id)
        elif isinstance(error, MetadataError):
            raise error
        elif isinstance(error, BaseException):
            log.error("the leader failed and stands again", office=self._key, exc_info=error)
            raise MetadataError("the leader failed") from error

    async def _resign(self, leadership: Leadership) -> None:
        try:
            await self._metadata.delete(leadership.key, leadership.version)
        except VersionMismatch:
            pass  # it was taken away
