"""The head of a coordinator in metadata: its epoch, the ledger of its log, and the floor of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.common.metadata.store import MetadataStore, Op
from magnetar.common.metadata.values import TransactionLogHead, decode, encode
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger.guarded_key import GuardedKey
from magnetar.ledger.managed_ledger.topic_head import read_ref, ref_value


class LogHeadKey(GuardedKey):
    """The head, as known to its owner; names a ledger of records (`new_record_ledger.RecordLedgerHead`)."""

    __slots__ = ("floor", "restored_ms")

    def __init__(self, metadata: MetadataStore, key: str, value: bytes, version: int) -> None:
        super().__init__(metadata, key, value, version)
        self.floor = self.decode().next_number_floor
        """Numbers below this may be given to transactions."""
        self.restored_ms = 0
        """Time of the last restoration of metadata; 0 without one."""

    def decode(self) -> TransactionLogHead:
        """Returns a copy to read, or to change."""
        return decode(TransactionLogHead, self.value)

    @property
    def record_ledger(self) -> LedgerRef | None:
        """The ledger of the log; None before its first record."""
        head = self.decode()
        return read_ref(head.log) if head.HasField("log") else None

    async def name_record_ledger(self, ref: LedgerRef, ops: Sequence[Op]) -> None:
        """Makes `ref` the ledger of the log. Raises OwnershipLost, VersionMismatch, MetadataError."""

        def edit(head: TransactionLogHead) -> None:
            head.log.CopyFrom(ref_value(ref))
            head.restored_ms = self.restored_ms

        await self._write(edit, ops)

    async def raise_floor(self, floor: int) -> None:
        """Allows numbers below `floor`; durable on return. Raises OwnershipLost, MetadataError."""

        def edit(head: TransactionLogHead) -> None:
            head.next_number_floor = max(head.next_number_floor, floor)

        await self._write(edit)

    async def _write(self, edit: Callable[[TransactionLogHead], None], ops: Sequence[Op] = ()) -> None:
        await self.sync()
        head = self.decode()
        edit(head)
        await self.commit_put(self.put_value(encode(head)), ops)
        self.floor = head.next_number_floor
