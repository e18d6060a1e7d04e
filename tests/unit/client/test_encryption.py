"""Data keys of RSA and EC, payloads, and what happens to messages without the right key."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from magnetar.client.connection.frames import Delivery, parse_entry
from magnetar.client.consumer.chunks import ChunkAssembler
from magnetar.client.consumer.decoding import EntryDecoder
from magnetar.client.encryption import (
    DATA_KEY_S,
    DATA_KEYS_MAX,
    FAILURE_S,
    CryptoFailure,
    Decryptor,
    Encryptor,
    unwrap_key,
)
from magnetar.client.errors import ClientError, Undecryptable
from magnetar.client.messages import Message, Outgoing, Receiver
from magnetar.client.producer.entries import EntryEncoder, single_in_batch
from magnetar.common.wire.batch import parse_metadata, payload_of
from magnetar.common.wire.frame import FrameDecoder, encode_entry
from magnetar.common.wire.pulsar_pb2 import (
    CompressionType,
    EncryptionKeys,
    KeyValue,
    MessageMetadata,
)

RSA = rsa.generate_private_key(65_537, 2_048)
OTHER_RSA = rsa.generate_private_key(65_537, 2_048)
DATA_KEY = bytes(range(32))
VECTOR = b"vector of 12"
OAEP = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)


def pem(key: PrivateKeyTypes, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def public_pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def wrapped_by_java(
    private: ec.EllipticCurvePrivateKey, data_key: bytes = DATA_KEY, *, mac_key_first: bool = True
) -> bytes:
    """ECIES as BouncyCastle's IESEngine does it with an ephemeral key, which it authenticates first."""
    ephemeral = ec.generate_private_key(private.curve)
    point = ephemeral.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    secret = point + ephemeral.exchange(ec.ECDH(), private.public_key())
    stream = b"".join(hashlib.sha1(secret + bytes((0, 0, 0, number))).digest() for number in (1, 2, 3))[:48]
    mac_key, mask = (stream[:16], stream[16:]) if mac_key_first else (stream[32:], stream[:32])
    masked = bytes(one ^ other for one, other in zip(data_key, mask, strict=True))
    return point + masked + hmac.new(mac_key, masked + bytes(8), "sha1").digest()


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_a_data_key_is_unwrapped_with_rsa_in_both_forms_of_pem(form: PrivateFormat) -> None:
    assert unwrap_key(pem(RSA, form), RSA.public_key().encrypt(DATA_KEY, OAEP)) == DATA_KEY


@pytest.mark.parametrize(
    "curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda each: each.name
)
@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_a_data_key_of_the_java_client_is_unwrapped_with_ec(
    curve: ec.EllipticCurve, form: PrivateFormat
) -> None:
    key = ec.generate_private_key(curve)
    assert unwrap_key(pem(key, form), wrapped_by_java(key)) == DATA_KEY


def test_a_known_ecies_value_is_unwrapped() -> None:
    """A fixed value, so that both sides of the construction cannot change together."""
    key = ec.derive_private_key(7, ec.SECP256R1())
    ephemeral = ec.derive_private_key(5, ec.SECP256R1())
    point = ephemeral.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    tail = bytes.fromhex(KNOWN_TAIL)
    assert unwrap_key(pem(key), point + tail) == DATA_KEY


KNOWN_TAIL = (
    "993b0c8a253673872e75009f843c4f22333c00de5d10baa331ff11e59e8ef2e33acaad596e70b3826efaaa129870023f7f0f3a90"
)
"""Masked data key and tag for the private key 7 and the ephemeral key 5 of P-256."""


def test_the_wrong_half_of_the_derived_stream_is_no_mac_key() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(Undecryptable, match="not encrypted for this EC key"):
        unwrap_key(pem(key), wrapped_by_java(key, mac_key_first=False))


def test_wrong_keys_say_why() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    wrapped = wrapped_by_java(key)
    for bad, private, reason in (
        (wrapped, ec.generate_private_key(ec.SECP256R1()), "not encrypted for this EC key"),
        (wrapped, ec.generate_private_key(ec.SECP521R1()), "another curve"),
        (wrapped[:-1] + bytes((wrapped[-1] ^ 1,)), key, "not encrypted for this EC key"),
        (wrapped_by_java(key, DATA_KEY[:31] + b"\0"), key, ""),
        (b"", key, "another curve"),
        (b"", RSA, "not encrypted for this RSA key"),
        (RSA.public_key().encrypt(DATA_KEY, OAEP), OTHER_RSA, "not encrypted for this RSA key"),
        (RSA.public_key().encrypt(b"short", OAEP), RSA, "the data key has 5 bytes, not 32"),
        (b"", ed25519.Ed25519PrivateKey.generate(), "give an RSA or EC key"),
    ):
        if not reason:
            assert unwrap_key(pem(private), bad) == DATA_KEY[:31] + b"\0"
            continue
        with pytest.raises(Undecryptable, match=reason):
            unwrap_key(pem(private), bad)
    with pytest.raises(Undecryptable, match="not a PEM file"):
        unwrap_key(public_pem(RSA), b"")


def encrypted(payload: bytes, *names: str, **fields: object) -> tuple[MessageMetadata, bytes]:
    """Metadata and ciphertext, made without the code under test."""
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, **fields)  # type: ignore[arg-type]
    metadata.encryption_param = VECTOR
    for name in names:
        key = OTHER_RSA if name == "other" else RSA
        metadata.encryption_keys.append(
            EncryptionKeys(
                key=name,
                value=key.public_key().encrypt(DATA_KEY, OAEP),
                metadata=[KeyValue(key="version", value="3")],
            )
        )
    return metadata, AESGCM(DATA_KEY).encrypt(VECTOR, payload, None)


class Keys:
    """A key reader with keys by name, which counts its calls."""

    def __init__(self, **keys: bytes) -> None:
        self.keys = keys
        self.asked: list[tuple[str, Mapping[str, str]]] = []

    def __call__(self, name: str, metadata: Mapping[str, str]) -> bytes | None:
        self.asked.append((name, metadata))
        return self.keys.get(name)


def test_a_payload_is_decrypted_with_whichever_key_there_is_and_the_data_key_is_kept() -> None:
    keys = Keys(mine=pem(RSA))
    now = 0.0
    decryptor = Decryptor(keys, lambda: now)
    metadata, payload = encrypted(b"secret", "other", "mine")
    assert decryptor.decrypt(metadata, payload) == b"secret"
    assert keys.asked == [("other", {"version": "3"}), ("mine", {"version": "3"})]
    keys.asked.clear()
    for _ in range(3):
        now += DATA_KEY_S - 1
        decryptor.decrypt(metadata, payload)
    assert [name for name, _ in keys.asked] == ["other"] * 3
    keys.asked.clear()
    now += DATA_KEY_S
    decryptor.decrypt(metadata, payload)
    assert [name for name, _ in keys.asked] == ["other", "mine"]


def test_a_missing_key_is_read_again_after_a_while_only() -> None:
    keys = Keys()
    now = 0.0
    decryptor = Decryptor(keys, lambda: now)
    metadata, payload = encrypted(b"secret", "mine")
    for _ in range(2):
        with pytest.raises(Undecryptable, match="with mine: there is no private key for mine"):
            decryptor.decrypt(metadata, payload)
    assert len(keys.asked) == 1
    keys.keys["mine"] = pem(RSA)
    now += FAILURE_S
    assert decryptor.decrypt(metadata, payload) == b"secret"


def test_cached_data_keys_are_bounded() -> None:
    keys = Keys()
    decryptor = Decryptor(keys)
    for number in range(DATA_KEYS_MAX + 1):
        metadata, payload = encrypted(b"secret", "mine")[0], b""
        metadata.encryption_keys[0].value = b"%d" % number
        with pytest.raises(Undecryptable):
            decryptor.decrypt(metadata, payload)
    assert len(decryptor._cache) == DATA_KEYS_MAX


def test_a_changed_vector_or_payload_is_refused() -> None:
    decryptor = Decryptor(Keys(mine=pem(RSA)))
    metadata, payload = encrypted(b"secret", "mine")
    assert decryptor.decrypt(metadata, payload) == b"secret"
    for vector, changed in (
        (b"vector of 13", payload),
        (b"", payload),
        (VECTOR, payload[:-1]),
        (VECTOR, b""),
    ):
        metadata.encryption_param = vector
        with pytest.raises(Undecryptable, match="does not match the data key of mine"):
            decryptor.decrypt(metadata, changed)


def test_what_a_producer_encrypts_has_its_own_vector_and_a_new_data_key_every_four_hours() -> None:
    now = 0.0
    encryptor = Encryptor({"mine": public_pem(RSA), "other": public_pem(OTHER_RSA)}, lambda: now)
    made = []
    for age in (0.0, DATA_KEY_S - 1, DATA_KEY_S):
        now = age
        metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)
        made.append((metadata, encryptor.encrypt(metadata, b"secret")))
    for metadata, payload in made:
        assert [key.key for key in metadata.encryption_keys] == ["mine", "other"]
        assert not metadata.HasField("encryption_algo")
        data_key = RSA.decrypt(metadata.encryption_keys[0].value, OAEP)
        assert OTHER_RSA.decrypt(metadata.encryption_keys[1].value, OAEP) == data_key
        assert AESGCM(data_key).decrypt(metadata.encryption_param, payload, None) == b"secret"
    assert len({metadata.encryption_param for metadata, _ in made}) == 3
    first, second, third = [metadata.encryption_keys[0].value for metadata, _ in made]
    assert first == second != third


def test_a_producer_refuses_public_keys_that_cannot_encrypt() -> None:
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    for bad in (b"no key", key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)):
        with pytest.raises(ClientError, match=r"public key mine cannot encrypt.*give an RSA public key"):
            Encryptor({"mine": bad})


@dataclass
class Place:
    """The consumer, as far as messages ask it."""

    topic: str = "t"
    partition: int = -1


def delivered(
    entry: bytes,
    decryptor: Decryptor | None,
    action: CryptoFailure = "fail",
    chunks: ChunkAssembler | None = None,
) -> list[Message]:
    receiver = cast(Receiver, Place())
    decoder = EntryDecoder(receiver, chunks or ChunkAssembler(10, 0), decryptor, action, lambda: 0.0)
    return decoder.messages(Delivery(1, 3, 9, 0, (), -1, parse_entry(entry)))[0]


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZLIB])
def test_what_is_sent_encrypted_comes_back(batched: bool, compression: CompressionType.ValueType) -> None:
    messages = [Outgoing(b"a" * 100, "k"), Outgoing(b"b", "k")][: 2 if batched else 1]
    encoder = EntryEncoder(7, "p", compression, Encryptor({"mine": public_pem(RSA)}))
    if batched:
        parts = [single_in_batch(message, 40 + number) for number, message in enumerate(messages)]
        data = encoder.batch(parts, messages[0], 40, 41, 1_000)
    else:
        data = encoder.single(messages[0], 40, 1_000)
    (frame,) = FrameDecoder().receive_data(data)
    assert b"aaa" not in frame.entry
    assert parse_metadata(frame.entry).uncompressed_size in (0, 100) or batched
    found = delivered(frame.entry, Decryptor(Keys(mine=pem(RSA))))
    assert [each.data for each in found] == [each.payload for each in messages]
    assert all(each.encrypted is None and not each.unreadable for each in found)
    (opaque,) = delivered(frame.entry, None)
    assert (opaque.data, opaque.key) == (b"", "k")
    assert "give the private key" in opaque.unreadable
    assert opaque.encrypted is not None
    assert list(opaque.encrypted.keys) == ["mine"]
    (raw,) = delivered(frame.entry, Decryptor(Keys()), "consume")
    assert raw.data == bytes(payload_of(frame.entry))
    assert not raw.unreadable
    assert raw.encrypted is not None
    assert raw.encrypted.batch_size == (2 if batched else 0)
    assert raw.encrypted.compression == compression
    assert raw.encrypted.vector == parse_metadata(frame.entry).encryption_param


def test_each_chunk_is_decrypted_by_itself() -> None:
    decryptor, chunks = Decryptor(Keys(mine=pem(RSA))), ChunkAssembler(10, 0)
    found: list[Message] = []
    for number, piece in enumerate((b"one ", b"two")):
        metadata, payload = encrypted(piece, "mine", uuid="u", chunk_id=number, num_chunks_from_msg=2)
        entry = encode_entry(metadata.SerializeToString(), payload)
        (opaque,) = delivered(entry, Decryptor(Keys()))
        assert opaque.encrypted is not None
        assert opaque.entry.ids == [(3, 9)]
        found += delivered(entry, decryptor, chunks=chunks)
    assert [each.data for each in found] == [b"one two"]
