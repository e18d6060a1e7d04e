"""This broker's session and registration in metadata, and their end.

Each start is a separate run with a random number: bundles of an earlier run have no owner. The registration
is a hint, not a lock: a new owner fences a topic's ledgers, whatever is registered (storage contract, section
3). So a broker that cannot reach metadata continues to serve. It stops at once when metadata reports that its
session has ended, or that another run has replaced its registration.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from magnetar.broker.tenure import Lease
from magnetar.common.errors import MetadataError, ServiceNotReady, UnknownOutcome, VersionMismatch, WatchLost
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, MetadataStore, Session, Watch
from magnetar.common.metadata.values import BrokerRegistration, decode, encode
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.clock import Clock
from prometheus_client import Gauge

log = get_logger(__name__)

REGISTERED: Final = Gauge(
    "magnetar_broker_registered",
    "1 while this broker of a cluster is registered and serves its bundles, 0 while it does not.",
    # Labeled by broker id, so that a standalone, which is not registered, publishes no sample.
    ["broker"],
    registry=REGISTRY,
)

RETRY_AFTER_S: Final = 0.2
RETRY_AFTER_MAX_S: Final = 5.0
"""Maximum seconds between attempts while metadata does not answer; the wait doubles up to it."""

Change = Callable[[BrokerRegistration], None]


class Presence:
    """One run of this broker: `begin`, `register`, serve until `lost` returns, `close`. Used once."""

    def __init__(
        self,
        metadata: MetadataStore,
        keys: Keys,
        clock: Clock,
        rng: random.Random,
        *,
        session_ttl_ms: int,
    ) -> None:
        self.broker_id = ""
        """Id for brokers and operators: the advertised host and HTTP port."""
        self.run: Final = rng.getrandbits(63) + 1
        self.lease: Final = Lease(clock)
        self._metadata = metadata
        self._keys = keys
        self._key = ""
        self._session_ttl_ms = session_ttl_ms
        self._session: Session | None = None
        self._writing = asyncio.Lock()
        self.registration = BrokerRegistration(run=self.run, started_ms=clock.wall_ms())
        """The registration written last."""
        self.version = ABSENT
        """Version of the registration's key; ABSENT before `register`."""

    @property
    def session(self) -> Session:
        """Session of this run; after `begin`. After `close` it has ended, and refuses."""
        assert self._session is not None, "presence has begun"
        return self._session

    def is_run(self, broker_id: str, run: int) -> bool:
        """Whether the given broker and run are this one."""
        return run == self.run and broker_id == self.broker_id

    async def begin(self, broker_id: str) -> None:
        """Starts the session; waits until metadata is reachable."""
        self.broker_id = self.registration.broker_id = broker_id
        self._key = self._keys.broker(broker_id)
        REGISTERED.labels(broker_id).set(0)
        wait_s = RETRY_AFTER_S
        while self._session is None:
            try:
                self._session = await self._metadata.session(self._session_ttl_ms)
                self.lease.begin(self._session)
            except MetadataError as error:
                log.warning("no session in metadata yet", error=str(error), retry_after_s=wait_s)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_AFTER_MAX_S)

    async def register(self, change: Change) -> None:
        """Registers this broker with the fields that `change` fills in; call it again when they change.

        A registration that an earlier run at the same address left behind is replaced at once: two processes
        cannot listen there. Raises MetadataError when that fails, ServiceNotReady when another run has
        replaced this one.
        """
        async with self._writing:
            wanted = BrokerRegistration()
            wanted.CopyFrom(self.registration)
            change(wanted)
            data = encode(wanted)
            while True:
                try:
                    version = await self.session.put_ephemeral(self._key, data, await self._replaceable())
                except VersionMismatch:
                    continue
                except UnknownOutcome:
                    found = await self._metadata.get(self._key)
                    if found is None or found.value != data:
                        raise
                    version = found.version
                break
            self.registration, self.version = wanted, version
            REGISTERED.labels(self.broker_id).set(1)
            log.info("registered", broker=self.broker_id, run=f"{self.run:x}", draining=wanted.draining)

    async def lost(self) -> str:
        """Waits until metadata reports that this run has ended; returns the reason."""
        expired = asyncio.create_task(self.session.expired(), name="broker's session")
        replaced = asyncio.create_task(self._replaced(), name="broker's registration")
        try:
            await asyncio.wait({expired, replaced}, return_when=asyncio.FIRST_COMPLETED)
            REGISTERED.labels(self.broker_id).set(0)
            if replaced.done():
                return replaced.result()
            return "its session in metadata has ended"
        finally:
            for task in (expired, replaced):
                task.cancel()
            await asyncio.wait({expired, replaced})

    async def close(self) -> None:
        """Ends the session, so that other brokers need not wait for its expiry; idempotent."""
        if self._session is not None:
            REGISTERED.labels(self.broker_id).set(0)
            try:
                await self._session.close()
            except MetadataError as error:
                log.warning("session in metadata was not ended; it expires by itself", error=str(error))

    async def _replaceable(self) -> int:
        """Returns the version of the key that our registration replaces."""
        found = await self._metadata.get(self._key)
        if found is None:
            return ABSENT
        other = decode(BrokerRegistration, found.value)
        if other.run != self.run:
            if self.version != ABSENT:
                raise ServiceNotReady(f"another run of {self.broker_id} has registered at this address")
            log.info(
                "replacing the registration of an earlier run at this address",
                broker=self.broker_id,
                run=f"{other.run:x}",
            )
        return found.version

    async def _replaced(self) -> str:
        """Waits until the registration is deleted or belongs to another run; returns the reason."""
        wait_s = RETRY_AFTER_S
        while True:
            watch = self._metadata.watch(self._key)
            try:
                found = await self._metadata.get(self._key)
                if found is None:
                    return "its registration in metadata was deleted"
                if decode(BrokerRegistration, found.value).run != self.run:
                    return "another run has registered at its address"
                wait_s = RETRY_AFTER_S
                await self._changed(watch, found.version, self._session_ttl_ms / 3000)
            except WatchLost:
                continue
            except MetadataError as error:
                log.warning("metadata does not answer; serving continues", error=str(error))
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_AFTER_MAX_S)
            finally:
                await watch.aclose()

    async def _changed(self, watch: Watch, version: int, seconds_max: float) -> None:
        """Waits until the key was changed after `version`; a watch is a hint, so the wait also ends after
        `seconds_max`.
        """
        try:
            async with asyncio.timeout(seconds_max):
                async for event in watch:
                    if event.key == self._key and event.version > version:
                        return
        except TimeoutError:
            pass
