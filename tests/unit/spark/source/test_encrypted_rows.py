"""Raw rows of encrypted entries become what the same entries are without encryption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from magnetar.client.encryption import Encryptor
from magnetar.client.errors import Undecryptable
from magnetar.client.messages import Outgoing
from magnetar.client.producer.entries import EntryEncoder, single_in_batch
from magnetar.common.wire.batch import parse_metadata, payload_of
from magnetar.common.wire.frame import FrameDecoder, encode_entry
from magnetar.common.wire.pulsar_pb2 import CompressionType, MessageMetadata
from magnetar.ledger.ledger_store import RUN_CHUNK, Run
from magnetar.spark.rows.columns import ENCRYPTION_KEYS, chosen, stored_columns
from magnetar.spark.source.encrypted_rows import EncryptedRows
from magnetar.spark.source.private_keys import DIRECTORY_VARIABLE
from magnetar.spark.source.range_reader import run_tables
from magnetar.spark.source_options import SourceOptions, parse_options

TOPIC = "persistent://public/default/t"
COLUMNS = stored_columns(chosen((), value=False), joins=True, times=True)
KEY = rsa.generate_private_key(65_537, 2_048)
PUBLIC = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture(autouse=True)
def no_keys_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)


@pytest.fixture
def keys(tmp_path: Path) -> str:
    """A directory with the key `mine`."""
    pem = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "mine.pem").write_bytes(pem)
    return str(tmp_path)


def options(**given: str) -> SourceOptions:
    return parse_options({"topic": TOPIC, **{name.replace("_", "."): value for name, value in given.items()}})


def entry(
    name: str, *payloads: bytes, compression: CompressionType.ValueType = CompressionType.NONE
) -> bytes:
    """A batch, encrypted for a key name or, without a name, not."""
    encoder = EntryEncoder(1, "p", compression, Encryptor({name: PUBLIC}) if name else None)
    messages = [Outgoing(payload, "key", {"p": "1"}) for payload in payloads]
    parts = [single_in_batch(message, number) for number, message in enumerate(messages, 40)]
    data = encoder.batch(parts, messages[0], 40, 39 + len(parts), 1_000)
    (frame,) = FrameDecoder().receive_data(data)
    return frame.entry


def table_of(*entries: bytes, columns: list[str], flags: int = 0) -> Any:
    """Stored rows of entries, each of which counts as two messages."""
    runs = [
        Run([each], 2_000 + number, 100 + 2 * number, [2], flags, ledger_id=5, first_entry_id=number)
        for number, each in enumerate(entries)
    ]
    return pa.concat_tables(table for table, _ in run_tables(runs, 3, columns))


def opened(given: SourceOptions, *entries: bytes, names: bool = False) -> Any:
    rows = EncryptedRows(given, COLUMNS, names=names)
    return pa.concat_tables(rows.tables(TOPIC, table_of(*entries, columns=rows.stored_columns)))


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZLIB])
def test_decrypted_rows_are_those_of_the_same_entries_without_encryption(
    keys: str, compression: CompressionType.ValueType
) -> None:
    kinds = ("", "mine", "mine", "", "mine")
    bodies = [(b"a%d" % number * 2_000, b"b%d" % number) for number in range(len(kinds))]
    pairs = list(zip(kinds, bodies, strict=True))
    stored = [entry(kind, *body, compression=compression) for kind, body in pairs]
    plain = [entry("", *body, compression=compression) for body in bodies]
    found = opened(options(crypto_key_dir=keys), *stored)
    assert found.to_pylist() == table_of(*plain, columns=COLUMNS).to_pylist()
    assert found["raw_entry"].null_count == found["raw_reason"].null_count == found.num_rows == 10


def test_the_entry_is_not_kept_beside_its_messages_however_large_they_are(keys: str) -> None:
    large = entry("mine", b"a" * 3_000_000, b"b", compression=CompressionType.ZLIB)
    found = opened(options(crypto_key_dir=keys), large)
    assert found["payload"].to_pylist() == [b"a" * 3_000_000, b"b"]
    assert found["raw_entry"].null_count == 2


def test_a_chunk_is_decrypted_and_left_to_be_joined(keys: str) -> None:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2, uuid="u", chunk_id=1, num_chunks_from_msg=2
    )
    metadata.compression, metadata.uncompressed_size = CompressionType.LZ4, 999
    plain = encode_entry(metadata.SerializeToString(), b"half of something")
    sealed = Encryptor({"mine": PUBLIC}).encrypt(metadata, b"half of something")
    chunk = encode_entry(metadata.SerializeToString(), sealed)
    rows = EncryptedRows(options(crypto_key_dir=keys), COLUMNS, names=False)
    (found,) = rows.tables(TOPIC, table_of(chunk, columns=rows.stored_columns, flags=RUN_CHUNK))
    (row,) = found.to_pylist()
    assert found.to_pylist() == table_of(plain, columns=COLUMNS, flags=RUN_CHUNK).to_pylist()
    assert (row["payload"], row["raw_reason"]) == (b"half of something", None)
    assert (row["chunk_uuid"], row["chunk_id"], row["chunk_total"]) == ("u", 1, 2)


def test_without_private_keys_rows_stay_as_they_are_stored() -> None:
    stored = [entry("mine", b"a", b"b"), entry("", b"a", b"b")]
    rows = EncryptedRows(options(), COLUMNS, names=False)
    assert rows.stored_columns == COLUMNS
    assert not rows.decrypts
    table = table_of(*stored, columns=COLUMNS)
    assert list(rows.tables(TOPIC, table)) == [table]


def test_the_environment_of_the_task_names_the_directory(keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, keys)
    assert opened(options(), entry("mine", b"a", b"b"))["payload"].to_pylist() == [b"a", b"b"]
    (raw,) = opened(options(crypto_key_dir=""), entry("mine", b"a", b"b")).to_pylist()
    assert raw["raw_reason"] == "encrypted"


def test_what_cannot_be_decrypted_stays_a_raw_row_between_others_with_the_reason(keys: str) -> None:
    sealed = entry("other", b"x", b"y")
    stored = (entry("mine", b"a", b"b"), sealed, entry("mine", b"c", b"d"), entry("", b"e", b"f"))
    found = opened(options(crypto_key_dir=keys), *stored, names=True).to_pylist()
    assert [row["payload"] for row in found] == [b"a", b"b", None, b"c", b"d", b"e", b"f"]
    assert [row["entry_id"] for row in found] == [0, 0, 1, 2, 2, 3, 3]
    assert [row[ENCRYPTION_KEYS] for row in found] == [
        ["mine"], ["mine"], ["other"], ["mine"], ["mine"], None, None,
    ]  # fmt: skip
    raw = found[2]
    assert raw["raw_entry"] == sealed
    assert raw["raw_reason"].startswith("encrypted: it is encrypted with other: private key for other: ")
    assert "other.pem: No such file" in raw["raw_reason"]


@pytest.mark.parametrize("field", ["vector", "payload", "key"])
def test_a_changed_entry_is_not_decrypted(keys: str, field: str) -> None:
    stored = entry("mine", b"a", b"b")
    metadata, payload = parse_metadata(stored), bytes(payload_of(stored))
    if field == "vector":
        metadata.encryption_param = bytes(12)
    elif field == "payload":
        payload = payload[:-1] + bytes((payload[-1] ^ 1,))
    else:
        metadata.encryption_keys[0].value = bytes(256)
    changed = encode_entry(metadata.SerializeToString(), payload)
    (row,) = opened(options(crypto_key_dir=keys), changed).to_pylist()
    assert row["payload"] is None
    assert row["raw_reason"].startswith("encrypted: ")


def test_names_of_keys_are_told_once_each_without_private_keys() -> None:
    twice = entry("mine", b"a", b"b")
    metadata = parse_metadata(twice)
    metadata.encryption_keys.append(metadata.encryption_keys[0])
    twice = encode_entry(metadata.SerializeToString(), bytes(payload_of(twice)))
    found = opened(options(), twice, entry("", b"c", b"d"), names=True)
    assert found[ENCRYPTION_KEYS].to_pylist() == [["mine"], None, None]
    assert found["raw_reason"].to_pylist() == ["encrypted", None, None]


def test_discard_leaves_out_what_cannot_be_decrypted(keys: str) -> None:
    stored = (entry("other", b"x", b"y"), entry("mine", b"a", b"b"), entry("other", b"x", b"y"))
    found = opened(options(crypto_key_dir=keys, crypto_failure="discard"), *stored)
    assert found["payload"].to_pylist() == [b"a", b"b"]
    rows = EncryptedRows(options(crypto_failure="discard"), COLUMNS, names=False)
    assert list(rows.tables(TOPIC, table_of(*stored, columns=rows.stored_columns))) == []


def test_fail_names_the_entry_and_what_to_do(keys: str) -> None:
    stored = (entry("mine", b"a", b"b"), entry("other", b"x", b"y"))
    with pytest.raises(Undecryptable, match=f"{TOPIC}, entry 5:1: .*other.*crypto.failure"):
        opened(options(crypto_key_dir=keys, crypto_failure="fail"), *stored)
    with pytest.raises(Undecryptable, match=f"entry 5:0: .*set crypto.key.dir, or {DIRECTORY_VARIABLE}"):
        opened(options(crypto_failure="fail"), *stored)


def test_only_the_wanted_columns_come_out(keys: str) -> None:
    wanted = stored_columns(["key"], joins=False, times=False)
    rows = EncryptedRows(options(crypto_key_dir=keys), wanted, names=False)
    table = table_of(entry("mine", b"a", b"b"), columns=rows.stored_columns)
    assert set(table.column_names) > set(wanted)
    (found,) = rows.tables(TOPIC, table)
    assert found.column_names == wanted
    assert pc.unique(found["key"]).to_pylist() == ["key"]
