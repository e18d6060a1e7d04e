"""Whether the bookie accepts ordinary appends: not while its disk is too full or an operator made it
read-only.

Between the two thresholds the mode stays unchanged, so that a disk near one does not make it flap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar.bookie.core_config import BookieCoreConfig
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.disk import Disk
from prometheus_client import Gauge

log = get_logger(__name__)

STATUS = Gauge(
    "bookie_SERVER_STATUS", "1 while the bookie takes appends, 0 while it is read-only.", registry=REGISTRY
)
USED_SHARE = Gauge(
    "magnetar_bookie_disk_used_ratio", "Share of the data directory's disk that is used.", registry=REGISTRY
)


class ReadOnlyMode:
    """Checks the disk periodically. `is_full` returns whether the log refuses appends anyway."""

    def __init__(self, disk: Disk, config: BookieCoreConfig, is_full: Callable[[], bool]) -> None:
        self.on_change: Callable[[], None] | None = None
        """Called on the loop after `active` changed."""
        self._disk = disk
        self._config = config
        self._is_full = is_full
        self._operator = False
        self._over = False
        self._told = False
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        STATUS.set(1)

    @property
    def active(self) -> bool:
        """Returns whether ordinary appends are refused."""
        return self._operator or self._over

    @property
    def reason(self) -> str:
        """Returns the reason, for the client and the log."""
        if self._operator:
            return "an operator said so"
        return (
            f"its disk is over diskUsageThreshold={self._config.disk_usage_threshold}" if self._over else ""
        )

    def start(self) -> None:
        """Checks now and periodically from now on."""
        self._look()

    def stop(self) -> None:
        """Stops checking; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def set_by_operator(self, read_only: bool) -> None:
        """Sets the operator's mode; holds until changed, or until the next start."""
        self._operator = read_only
        self._tell()

    def check(self) -> None:
        """Checks the disk now."""
        total = self._disk.total_bytes()
        used = 1 - self._disk.free_bytes() / total if total else 0.0
        USED_SHARE.set(used)
        config = self._config
        if used > config.disk_usage_threshold or self._is_full():
            self._over = True
        elif used < min(config.disk_usage_low_water_mark, config.disk_usage_threshold):
            self._over = False
        self._tell()

    def _look(self) -> None:
        try:
            self.check()
        except OSError as error:
            log.error("the disk's use can't be read", error=str(error))
        self._timer = self._loop.call_later(self._config.disk_check_interval_ms / 1000, self._look)

    def _tell(self) -> None:
        if self.active == self._told:
            return
        self._told = self.active
        STATUS.set(0 if self._told else 1)
        log.warning(
            "the bookie is read-only" if self._told else "the bookie is writable again", reason=self.reason
        )
        if self.on_change is not None:
            self.on_change()
