"""One leader among many: an ephemeral key, and everyone else watches for its end.

A session is a hint, so two may believe for a while that they lead. Who writes because it leads does so in
transactions that also check its key (`Leadership.check`), or does nothing that two may not do.
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
    """An office that was won."""

    key: str
    version: int
    epoch: int
    """Above those of all earlier leaders."""

    def check(self) -> Check:
        """To be part of every transaction of this leader."""
        return Check(self.key, self.version)


class Candidate:
    """Stands for the office of `key` again and again; `lead` runs while it is held.

    `lead` is canceled when the session ends. It may return, or raise VersionMismatch of the office's key
    or another MetadataError: then the office is given up, and the candidate stands again after a while.
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
        """`session` gives the one that lives now. `candidate` is what the key says while this one leads,
        but for the epoch and the time.
        """
        self._metadata = metadata
        self._key = key
        self._session = session
        self._clock = clock
        self._candidate = candidate
        self._id = candidate.id
        self._lead = lead

    async def run(self) -> None:
        """Until cancelled."""
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
        """Try to win, or wait until whoever holds the office is gone."""
        watch = self._metadata.watch(self._key)
        try:
            listing = await self._metadata.children(self._key)
            holder = next((item for item in listing.items if item.key == self._key), None)
            if holder is not None and self._is_ours(holder.value):
                # Of an earlier life, or a claim that came through after nobody believed in it any more.
                await self._metadata.delete(self._key, holder.version)
                return None
            if holder is None:
                # Every earlier leader's key was written above the revision that it had listed.
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
