"""Loads changed certificates into running services: all files together, or what was loaded before stays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from magnetar.common.errors import ConfigError
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from magnetar.common.runtime.file_signature import Signature, signature_of
from magnetar.common.security.audit import audit_process
from magnetar.common.security.hangup import on_hangup
from magnetar.common.security.tls.certificate_times import certificates_in, not_after
from prometheus_client import Counter, Gauge

_log = get_logger(__name__)

WARNING_S: Final = 14 * 86_400
"""Before the expiry of a certificate the log warns of it."""

WARNING_EVERY_S: Final = 86_400.0

RELOADS: Final = Counter(
    "magnetar_tls_reloads",
    "Changed certificate files, by whether they were loaded (ok) or the former ones stay in use (failed).",
    ["result"],
    registry=REGISTRY,
)
begin_at_zero(RELOADS, "ok", "failed")

EXPIRY: Final = Gauge(
    "magnetar_tls_certificate_expiry_seconds",
    "Seconds until the first certificate in a file in use expires; negative afterwards.",
    ["file"],
    registry=REGISTRY,
)


class Reloadable(Protocol):
    """Something loaded from files, as ServerTls."""

    @property
    def paths(self) -> Sequence[str]: ...
    @property
    def signature(self) -> Signature: ...
    def load(self) -> None:
        """Load the files again. Raises ConfigError, and keeps what was loaded then."""


class TlsReload:
    """Watches files and loads them again once they changed. `start`, then `close`."""

    def __init__(
        self, watched: Sequence[Reloadable], interval_s: float, changed: Callable[[], None] | None = None
    ) -> None:
        """Looks every `interval_s` seconds; 0: at SIGHUP alone. Calls `changed` after files were loaded."""
        self._changed = changed
        self._watched = list(watched)
        self._interval_s = interval_s
        self._refused: dict[int, Signature] = {}
        self._warned: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._end_hangups: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to watch, on the running loop."""
        self._note_expiries()
        self._end_hangups = on_hangup(self._wake.set)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="tls reload")

    async def close(self) -> None:
        """Watch no more; idempotent."""
        if self._end_hangups is not None:
            self._end_hangups()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def look(self) -> None:
        """Load what has changed since it was loaded. Never raises for files that cannot be used."""
        loaded = False
        for watched in self._watched:
            now = signature_of(watched.paths)
            if now == watched.signature:
                self._refused.pop(id(watched), None)
                continue
            if self._refused.get(id(watched)) == now:
                continue  # the same files, of which the log has told already
            try:
                # In a thread: reading a platform's authorities takes tens of milliseconds.
                await asyncio.to_thread(watched.load)
            except ConfigError as error:
                self._refused[id(watched)] = now
                RELOADS.labels("failed").inc()
                _log.error("changed certificates cannot be loaded; the former stay", reason=str(error))
                files = ", ".join(watched.paths)
                audit_process("reload", files=files, outcome="failed", reason=str(error))
            else:
                self._refused.pop(id(watched), None)
                loaded = True
                RELOADS.labels("ok").inc()
                _log.info("certificates loaded", files=", ".join(watched.paths))
                audit_process("reload", files=", ".join(watched.paths), outcome="done")
        if loaded and self._changed is not None:
            self._changed()
        self._note_expiries()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._interval_s or None):
                    await self._wake.wait()
            except TimeoutError:
                pass
            else:
                self._wake.clear()
                self._refused.clear()
            await self.look()

    def _note_expiries(self) -> None:
        """Show and warn of the expiry of certificates; of files in use, so not of what failed to load."""
        for watched in self._watched:
            if signature_of(watched.paths) == watched.signature:
                for path in watched.paths:
                    self._note_expiry(path)

    def _note_expiry(self, path: str) -> None:
        try:
            ends = min(map(not_after, certificates_in(Path(path))), default=None)
        except (OSError, ValueError):
            return
        if ends is None:
            return  # a key, or a revocation list
        EXPIRY.labels(path).set_function(lambda: ends - time.time())
        now = time.time()
        if ends - now < WARNING_S and now - self._warned.get(path, float("-inf")) >= WARNING_EVERY_S:
            self._warned[path] = now
            told = "a certificate has expired" if ends <= now else "a certificate expires soon"
            _log.warning(told, file=path, days_left=round((ends - now) / 86_400, 1))
