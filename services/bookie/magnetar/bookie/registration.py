"""The bookie's registration in metadata: exists while its session lives, renewed when that ends.

Losing it only costs new fragments: clients keep the address they know. So the bookie continues to serve, and
retries registration as long as it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar.common.errors import MetadataError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore, Session
from magnetar.common.metadata.values import BookieRegistration, encode
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.task_owner import TaskOwner
from prometheus_client import Gauge

log = get_logger(__name__)

RETRY_AFTER_S: Final = 0.2
RETRY_AFTER_MAX_S: Final = 5.0
"""Waits in seconds between attempts while metadata is unavailable, as (first, longest); doubling."""

REGISTERED: Final = Gauge(
    "magnetar_bookie_registered",
    "1 while the bookie is in metadata's list of those that are up.",
    registry=REGISTRY,
)


async def _nothing_required() -> None:
    """Accepts any metadata."""


class Registration:
    """Maintains one registration. `describe()` returns its content; call `changed` after that changes.

    `require()` is called before each session and each write, and once per session time; it raises
    MetadataError while the bookie may not register.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        keys: Keys,
        describe: Callable[[], BookieRegistration],
        session_timeout_ms: int,
        require: Callable[[], Awaitable[None]] = _nothing_required,
    ) -> None:
        self._metadata = metadata
        self._keys = keys
        self._describe = describe
        self._session_timeout_ms = session_timeout_ms
        self._require = require
        self.registered = False
        """Whether the bookie is registered, as far as is known: stays true while metadata is unavailable."""
        self._session: Session | None = None
        self._key = ""
        self._news = asyncio.Event()
        self._first = asyncio.Event()
        self._tasks = TaskOwner("registration")

    async def start(self) -> None:
        """Registers; returns once done. Waits while metadata is unavailable."""
        self._tasks.spawn(self._keep(), "keep")
        await self._first.wait()

    def changed(self) -> None:
        """Schedules an update of the registration after a change of `describe`; a plain call."""
        self._news.set()

    async def close(self) -> None:
        """Removes the registration; idempotent. If metadata is unreachable, the session's end removes it."""
        await self._tasks.close()
        session, self._session = self._session, None
        self._note(registered=False)
        if session is not None:
            with contextlib.suppress(MetadataError):
                await session.close()

    async def _keep(self) -> None:
        wait_s = RETRY_AFTER_S
        while True:
            try:
                await self._require()
                self._session = await self._metadata.session(self._session_timeout_ms)
                await self._put(self._session)
                self._first.set()
                wait_s = RETRY_AFTER_S
                await self._follow(self._session)
                log.warning("the session with metadata ended; registering again")
            except (MetadataError, OSError) as error:  # OSError: of a disk that does not say what is free
                log.warning("the bookie cannot register", reason=str(error), retry_after_s=wait_s)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_AFTER_MAX_S)
            self._note(registered=False)
            await self._give_up_session()

    def _note(self, *, registered: bool) -> None:
        self.registered = registered
        REGISTERED.set(registered)

    async def _put(self, session: Session) -> None:
        self._news.clear()
        value = self._describe()
        self._key = self._keys.bookie(value.bookie_id)
        await session.put_ephemeral(self._key, encode(value))
        self._note(registered=True)
        log.info("registered", bookie=value.bookie_id, address=value.address, read_only=value.read_only)

    async def _follow(self, session: Session) -> None:
        """Runs until the session ends: writes changes, and restores a missing registration.

        It may vanish although the session lives: a late write of an earlier session may have bound it to that
        one.
        """
        ended = asyncio.ensure_future(session.expired())
        try:
            while not ended.done():
                news = asyncio.ensure_future(self._news.wait())
                try:
                    done, _ = await asyncio.wait(
                        {ended, news},
                        timeout=self._session_timeout_ms / 1000,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                finally:
                    news.cancel()
                if not ended.done() and (self._news.is_set() or (not done and await self._is_gone())):
                    await self._require()
                    await self._put(session)
        finally:
            ended.cancel()

    async def _is_gone(self) -> bool:
        """Whether the registration is gone, if metadata answers; checks the requirements otherwise."""
        try:
            if await self._metadata.get(self._key) is None:
                return True
            await self._require()
        except MetadataError:
            pass
        return False

    async def _give_up_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(MetadataError):
                await session.close()
