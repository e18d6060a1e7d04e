"""How many message bytes the process may hold, as configured."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """How many message bytes the process may hold."""

    budget_megabytes: int = setting(
        256,
        "Megabytes of messages held at once: unconfirmed publishes, reads, unsent output, and the tail cache "
        "with what these leave. When it is spent, producers and reads wait.",
        key="magnetarMemoryBudgetMB",
        minimum=1,
    )
    pending_publish_megabytes_max: int = setting(
        64,
        "Unconfirmed publish megabytes of the whole broker at which publishing connections are not read on.",
        key="maxMessagePublishBufferSizeInMB",
        minimum=1,
    )
