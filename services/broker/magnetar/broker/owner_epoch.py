"""One broker owns every topic: who it is, from when on, and how it learns that it is no longer.

The owner is named by an ephemeral key, taken by compare-and-set. Its epoch is the version under which the key
was taken, which metadata gives out once and in order, so that a later owner always has a higher one.

The key is a hint, not a lock: a topic's ledgers are fenced by who takes it over, whatever the key says
(storage contract, section 3). So an owner that cannot reach metadata goes on, and only one that has heard
from metadata that its session has ended, or that the key is another's, stops at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar.common.errors import MetadataError, UnknownOutcome, VersionMismatch, WatchLost
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, MetadataStore, Session, Versioned, Watch
from magnetar.common.metadata.values import Leader, decode, encode
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.clock import Clock
from prometheus_client import Gauge

log = get_logger(__name__)

OWNER: Final = Gauge(
    "magnetar_broker_owner",
    "1 while this broker of a cluster is the owner of every topic, 0 while it stands by.",
    registry=REGISTRY,
)

RETRY_AFTER_S: Final = 0.2
RETRY_AFTER_MAX_S: Final = 5.0
"""Between attempts while metadata does not answer; the first wait, doubling up to the last."""


class OwnerEpoch:
    """One broker's term as the owner: `acquire`, serve until `lost` returns, `release`. Used once."""

    def __init__(
        self,
        metadata: MetadataStore,
        keys: Keys,
        clock: Clock,
        *,
        broker_id: str,
        address: str,
        session_ttl_ms: int,
    ) -> None:
        """`broker_id` is this start's own; `address` that of its binary protocol, "" when it is not fixed."""
        self._metadata = metadata
        self._key = keys.owner
        self._clock = clock
        self._broker_id = broker_id
        self._address = address
        self._session_ttl_ms = session_ttl_ms
        self._session: Session | None = None
        self.epoch = 0
        """Above that of every owner before; 0 until this broker is the owner."""
        self.heard_s = 0.0
        """When metadata last confirmed that this broker is the owner, on the monotonic clock."""

    async def acquire(self, on_standby: Callable[[Leader], None]) -> None:
        """Return once this broker is the owner; wait as long as another one is.

        `on_standby` is called with each owner that is waited for. A key that a former run at our own address
        left behind is taken at once: two processes cannot listen there. While metadata does not answer this
        tries again.
        """
        wait_s = RETRY_AFTER_S
        waited_for = b""
        while not self.epoch:
            watch = self._metadata.watch(self._key)
            try:
                if self._session is None:
                    self._session = await self._metadata.session(self._session_ttl_ms)
                found = await self._metadata.get(self._key)
                if found is None:
                    await self._take(self._session)
                    continue
                owner = decode(Leader, found.value)
                if owner.id == self._broker_id:
                    await self._mark(self._session, found)  # our own write, whose outcome we did not hear
                elif self._address and owner.address == self._address:
                    log.info("taking over from a former run at this address", owner=owner.id)
                    await self._metadata.delete(self._key, found.version)
                else:
                    if found.value != waited_for:
                        waited_for = found.value
                        on_standby(owner)
                    await self._changed(watch, found.version, self._session_ttl_ms / 1000)
                wait_s = RETRY_AFTER_S
            except (VersionMismatch, WatchLost):
                continue
            except MetadataError as error:
                log.warning("cannot become the owner yet", error=str(error), retry_after_s=wait_s)
                await self._forget_session()
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_AFTER_MAX_S)
            finally:
                await watch.aclose()
        OWNER.set(1)
        log.info("this broker is the owner of every topic", broker=self._broker_id, epoch=self.epoch)

    async def lost(self) -> str:
        """Return, with the reason, once metadata has said that this broker is not the owner any more."""
        assert self._session is not None, "only an owner can lose"
        expired = asyncio.create_task(self._session.expired(), name="owner's session")
        replaced = asyncio.create_task(self._replaced(), name="owner's key")
        try:
            await asyncio.wait({expired, replaced}, return_when=asyncio.FIRST_COMPLETED)
            OWNER.set(0)
            if replaced.done():
                return replaced.result()
            return "its session in metadata has ended"
        finally:
            for task in (expired, replaced):
                task.cancel()
            await asyncio.wait({expired, replaced})

    async def release(self) -> None:
        """Give the ownership up, so that another broker need not wait for the session's end; idempotent."""
        OWNER.set(0)
        await self._forget_session()

    async def _take(self, session: Session) -> None:
        leader = Leader(id=self._broker_id, address=self._address, since_ms=self._clock.wall_ms())
        try:
            version = await session.put_ephemeral(self._key, encode(leader), ABSENT)
        except UnknownOutcome:
            return  # the next look says whether it is ours
        await self._mark(session, Versioned(self._key, encode(leader), version))

    async def _mark(self, session: Session, taken: Versioned) -> None:
        """Write down the epoch, so that who reads the key need not know where it comes from."""
        leader = decode(Leader, taken.value)
        leader.epoch = leader.epoch or taken.version
        try:
            await session.put_ephemeral(self._key, encode(leader), taken.version)
        except UnknownOutcome:
            return  # the next look does it again
        self.heard_s = self._clock.monotonic()
        self.epoch = leader.epoch

    async def _changed(self, watch: Watch, version: int, seconds_max: float) -> None:
        """Until the key was changed after `version`; a watch is a hint, so look again after a while."""
        try:
            async with asyncio.timeout(seconds_max):
                async for event in watch:
                    if event.key == self._key and event.version > version:
                        return
        except TimeoutError:
            pass

    async def _replaced(self) -> str:
        """Until the key is seen to be another's, or gone."""
        wait_s = RETRY_AFTER_S
        while True:
            watch = self._metadata.watch(self._key)
            try:
                found = await self._metadata.get(self._key)
                if found is None:
                    return "its key in metadata is gone"
                owner = decode(Leader, found.value)
                if owner.id != self._broker_id:
                    return f"{owner.id} is the owner, with epoch {owner.epoch}"
                self.heard_s = self._clock.monotonic()
                wait_s = RETRY_AFTER_S
                await self._changed(watch, found.version, self._session_ttl_ms / 3000)
            except WatchLost:
                continue
            except MetadataError as error:
                log.warning("metadata does not answer; serving goes on", error=str(error))
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_AFTER_MAX_S)
            finally:
                await watch.aclose()

    async def _forget_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                await session.close()
            except MetadataError as error:
                log.warning("the session in metadata was not ended; it ends by itself", error=str(error))
