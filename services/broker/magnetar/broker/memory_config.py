"""Configuration of the memory that messages may use."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """Limits of the message bytes that the process holds."""

    budget_megabytes: int = setting(
        256,
        "Maximum megabytes of messages in memory: unconfirmed publishes, reads, unsent output, and the "
        "tail cache, which uses what the others leave. At the limit, producers and reads wait.",
        key="magnetarMemoryBudgetMB",
        minimum=1,
    )
    pending_publish_megabytes_max: int = setting(
        64,
        "Maximum megabytes of unconfirmed publishes of the broker; at the limit, it stops reading from "
        "connections that publish.",
        key="maxMessagePublishBufferSizeInMB",
        minimum=1,
    )
