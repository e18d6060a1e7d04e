"""Raw rows of encrypted entries made into rows of their messages, in tasks.

Offloaded and other entries are the same here: a raw row with the stored entry. Decrypted, an entry is decoded
like one that never was encrypted. So batches, chunks and compression need nothing of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from magnetar.client.encryption import Decryptor, key_names
from magnetar.client.errors import Undecryptable
from magnetar.common.wire.batch import parse_metadata, payload_of
from magnetar.common.wire.frame import encode_entry
from magnetar.common.wire.pulsar_pb2 import MessageMetadata
from magnetar.ledger.cold.entry_envelope import decode_envelope
from magnetar.ledger.cold.layout import COLUMNS
from magnetar.ledger.cold.rows import rows_in_pieces
from magnetar.ledger.ledger_store import Run
from magnetar.spark.rows.columns import ENCRYPTION_KEYS
from magnetar.spark.source.private_keys import DIRECTORY_VARIABLE, directory_reader, key_directory
from magnetar.spark.source.range_reader import stored_table
from magnetar.spark.source_options import SourceOptions

ENCRYPTED: Final = "encrypted"
"""The raw reason of encrypted entries."""

TABLE_BYTES: Final = 32 << 20
"""Bytes of decrypted rows after which a table ends."""

_NEEDED: Final = frozenset(
    {
        "ledger_id",
        "entry_id",
        "partition",
        "broker_publish_time",
        "message_index",
        "raw_entry",
        "raw_reason",
        "entry_metadata",
    }
)
_NAMES_TYPE: Final = pa.list_(pa.string())
_ANY_SIZE: Final = 1 << 62


class EncryptedRows:
    """Opens the encrypted entries of one range, as `crypto.key.dir` and `crypto.failure` say."""

    def __init__(self, options: SourceOptions, columns: Sequence[str], *, names: bool) -> None:
        """`columns` of COLUMNS are in the tables that come out, with `names` the column encryption_keys too.

        The environment of this process counts.
        """
        directory = key_directory(options.crypto_key_dir)
        self._decryptor = Decryptor(directory_reader(directory)) if directory else None
        self._action = options.crypto_failure
        self._columns = list(columns)
        self._names = names

    @property
    def decrypts(self) -> bool:
        """Whether there are private keys."""
        return self._decryptor is not None

    @property
    def stored_columns(self) -> list[str]:
        """The columns that tables must have, in the order of COLUMNS."""
        if self._passes:
            return self._columns
        return [column.name for column in COLUMNS if column.name in _NEEDED or column.name in self._columns]

    def tables(self, topic: str, table: Any) -> Iterator[Any]:
        """A table of stored rows with the messages of encrypted entries in their place, as several tables.

        Raises Undecryptable if `crypto.failure` is fail.
        """
        if self._passes:
            yield table
            return
        begin = size = 0
        made: list[Any] = []
        found = pc.indices_nonzero(pc.equal(table["raw_reason"], ENCRYPTED)).to_pylist()
        for first, end in _stretches(found):
            if first > begin:
                made.append(self._finished(table.slice(begin, first - begin)))
            for opened in self._opened(topic, table.slice(first, end - first)):
                made.append(opened)
                size += opened.nbytes
                if size >= TABLE_BYTES:
                    yield pa.concat_tables(made)
                    made, size = [], 0
            begin = end
        if begin < table.num_rows:
            made.append(self._finished(table.slice(begin)))
        if made:
            yield pa.concat_tables(made)

    @property
    def _passes(self) -> bool:
        return self._decryptor is None and self._action == "consume" and not self._names

    def _opened(self, topic: str, table: Any) -> Iterator[Any]:
        """The rows of entries that are all encrypted."""
        runs: list[Run] = []
        names: dict[int, list[str]] = {}
        taken_us = pc.cast(table["broker_publish_time"], pa.int64())
        for row in range(table.num_rows):
            entry = table["raw_entry"][row].as_py()
            metadata = parse_metadata(entry)
            entry_id = table["entry_id"][row].as_py()
            # The C++ client names its keys once more with each further chunk.
            names[entry_id] = list(dict.fromkeys(key.key for key in metadata.encryption_keys))
            try:
                opened = self._decrypted(metadata, entry)
            except Undecryptable as error:
                if self._action == "fail":
                    ledger_id = table["ledger_id"][row].as_py()
                    raise Undecryptable(
                        f"{topic}, entry {ledger_id}:{entry_id}: {error}; set crypto.failure to consume or "
                        "discard to read on behind it"
                    ) from None
                yield from self._decoded(table, runs, names)
                runs = []
                if self._action == "consume":
                    yield self._left(table.slice(row, 1), names[entry_id], str(error))
                continue
            envelope = decode_envelope(table["entry_metadata"][row].as_py())
            runs.append(
                Run(
                    [opened],
                    taken_us[row].as_py() // 1000,
                    table["message_index"][row].as_py(),
                    [envelope.message_count],
                    envelope.run_flags,
                    table["ledger_id"][row].as_py(),
                    entry_id,
                )
            )
        yield from self._decoded(table, runs, names)

    def _decrypted(self, metadata: MessageMetadata, entry: bytes) -> bytes:
        """Return the entry as it would be without encryption. Raises Undecryptable."""
        if self._decryptor is None:
            raise Undecryptable(
                f"it is encrypted with {key_names(metadata)}: set crypto.key.dir, or {DIRECTORY_VARIABLE} on "
                "executors, to the directory of private keys"
            )
        payload = self._decryptor.decrypt(metadata, bytes(payload_of(entry)))
        metadata.ClearField("encryption_keys")
        metadata.ClearField("encryption_param")
        metadata.ClearField("encryption_algo")
        return encode_entry(metadata.SerializeToString(), payload)

    def _decoded(self, table: Any, runs: list[Run], names: dict[int, list[str]]) -> Iterator[Any]:
        partition = table["partition"][0].as_py()
        for rows in rows_in_pieces(runs, partition=partition, rebuilt_bytes_max=_ANY_SIZE):
            yield self._with_names(
                stored_table(rows, self._columns), [names[entry_id] for entry_id in rows.columns["entry_id"]]
            )

    def _left(self, row: Any, names: list[str], reason: str) -> Any:
        """A raw row that stays one; with private keys, it tells why they do not fit."""
        if self.decrypts:
            at = row.column_names.index("raw_reason")
            text = pa.array([f"{ENCRYPTED}: {reason}"], type=pa.string())
            row = row.set_column(at, row.schema.field("raw_reason"), text)
        return self._with_names(row.select(self._columns), [names])

    def _finished(self, table: Any) -> Any:
        return self._with_names(table.select(self._columns), [None] * table.num_rows)

    def _with_names(self, table: Any, names: Sequence[list[str] | None]) -> Any:
        if not self._names:
            return table
        return table.append_column(ENCRYPTION_KEYS, pa.array(names, type=_NAMES_TYPE))


def _stretches(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, behind the last) of consecutive numbers."""
    first = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or rows[at] != rows[at - 1] + 1:
            yield rows[first], rows[at - 1] + 1
            first = at
