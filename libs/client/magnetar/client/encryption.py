"""End-to-end encryption: data keys wrapped with RSA or ECIES, payloads in AES-256-GCM.

    MessageMetadata.encryption_keys    a wrapped data key for each name of a key pair
    MessageMetadata.encryption_param   initialization vector, 12 bytes
    payload                            ciphertext and a tag of 16 bytes, without associated data

A producer serializes, compresses, cuts into chunks, and encrypts each chunk with its own vector. Data keys
are wrapped with RSA (OAEP with SHA-1, no label), or by the Java client also with BouncyCastle's ECIES:

    wrapped    V (ephemeral point, uncompressed) C (masked data key) T (20)
    K          KDF2-SHA1(V + ECDH x coordinate): MAC key (16), mask (length of C)
    T          HMAC-SHA1(MAC key, C + 8 zero bytes)

The package `cryptography` is imported with the first message that needs it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from time import monotonic
from typing import Any, Final, Literal, TypeAlias

from magnetar.client.errors import ClientError, Undecryptable
from magnetar.common.wire.pulsar_pb2 import EncryptionKeys, MessageMetadata

KeyReader: TypeAlias = Callable[[str, Mapping[str, str]], bytes | None]
"""Returns the private key (PEM) of a name, given the pairs that the producer's key reader added. None: there
is no such key.
"""

CryptoFailure: TypeAlias = Literal["fail", "discard", "consume"]
"""Action for a message that cannot be decrypted: deliver it as unreadable, acknowledge it undelivered, or
deliver its ciphertext.
"""

DATA_KEY_S: Final = 4 * 3600.0
"""Seconds for which a data key is cached after its last use, and for which a producer uses one."""

FAILURE_S: Final = 10.0
"""Seconds after which a private key that was missing or wrong is read again."""

DATA_KEYS_MAX: Final = 1_000
"""Maximum number of cached data keys; the least recently used is dropped for another one."""

_DATA_KEY_BYTES: Final = 32
_IV_BYTES: Final = 12
_TAG_BYTES: Final = 16
_MAC_KEY_BYTES: Final = 16
_MAC_BYTES: Final = 20


@dataclass(slots=True)
class _CachedKey:
    """A data key, or the reason why there is none."""

    data_key: bytes
    reason: str
    expires_at: float


class Decryptor:
    """Decrypts the payloads of one consumer or task, and caches data keys."""

    __slots__ = ("_cache", "_now", "_read_key")

    def __init__(self, read_key: KeyReader, now: Callable[[], float] = monotonic) -> None:
        """`now` returns seconds."""
        self._read_key = read_key
        self._now = now
        self._cache: dict[bytes, _CachedKey] = {}

    def decrypt(self, metadata: MessageMetadata, payload: bytes) -> bytes:
        """Returns the plaintext of an entry's payload. Raises Undecryptable with the reason for each key."""
        aead = _import("hazmat.primitives.ciphers.aead")
        reasons = []
        for key in metadata.encryption_keys:
            cached = self._data_key(key)
            if cached.reason:
                reasons.append(cached.reason)
                continue
            try:
                plain = aead.AESGCM(cached.data_key).decrypt(metadata.encryption_param, payload, None)
            except (_import("exceptions").InvalidTag, ValueError):
                reasons.append(
                    f"its payload of {len(payload)} bytes does not match the data key of {key.key}"
                )
            else:
                return bytes(plain)
        raise Undecryptable(f"it is encrypted with {key_names(metadata)}: " + "; ".join(reasons))

    def _data_key(self, key: EncryptionKeys) -> _CachedKey:
        """Returns the data key from the cache, or unwraps it."""
        digest = hashlib.sha256(key.key.encode() + b"\0" + key.value).digest()
        now = self._now()
        cached = self._cache.pop(digest, None)
        if cached is None or cached.expires_at <= now:
            cached = self._unwrapped(key)
            cached.expires_at = now + FAILURE_S
        if not cached.reason:
            cached.expires_at = now + DATA_KEY_S
        while len(self._cache) >= DATA_KEYS_MAX:
            del self._cache[next(iter(self._cache))]
        self._cache[digest] = cached
        return cached

    def _unwrapped(self, key: EncryptionKeys) -> _CachedKey:
        pairs = {pair.key: pair.value for pair in key.metadata}
        try:
            pem = self._read_key(key.key, pairs)
            if pem is None:
                return _CachedKey(b"", f"there is no private key for {key.key}", 0)
            return _CachedKey(unwrap_key(pem, key.value), "", 0)
        except Undecryptable as error:
            return _CachedKey(b"", f"private key for {key.key}: {error}", 0)


class Encryptor:
    """Encrypts the payloads of one producer, and wraps its data key with RSA for each public key."""

    __slots__ = ("_data_key", "_expires_at", "_now", "_public_keys", "_wrapped")

    def __init__(self, public_keys: Mapping[str, bytes], now: Callable[[], float] = monotonic) -> None:
        """`public_keys` are PEM by name, `now` returns seconds. Raises ClientError for a key of another kind
        than RSA.
        """
        self._public_keys = public_keys
        self._now = now
        self._renew()

    def encrypt(self, metadata: MessageMetadata, payload: bytes) -> bytes:
        """Returns the ciphertext, and sets the keys and the vector in `metadata`."""
        if self._now() >= self._expires_at:
            self._renew()
        vector = secrets.token_bytes(_IV_BYTES)
        metadata.encryption_keys.extend(self._wrapped)
        metadata.encryption_param = vector
        aead = _import("hazmat.primitives.ciphers.aead")
        return bytes(aead.AESGCM(self._data_key).encrypt(vector, payload, None))

    def _renew(self) -> None:
        self._data_key = secrets.token_bytes(_DATA_KEY_BYTES)
        self._wrapped = [
            EncryptionKeys(key=name, value=wrap_key(name, pem, self._data_key))
            for name, pem in self._public_keys.items()
        ]
        self._expires_at = self._now() + DATA_KEY_S


def key_names(metadata: MessageMetadata) -> str:
    """Returns the names of the keys of a message as text."""
    return ", ".join(dict.fromkeys(key.key for key in metadata.encryption_keys))


def wrap_key(name: str, pem: bytes, data_key: bytes) -> bytes:
    """Wraps a data key with an RSA public key. Raises ClientError."""
    serialization = _import("hazmat.primitives.serialization")
    try:
        return bytes(serialization.load_pem_public_key(pem).encrypt(data_key, _oaep()))
    except (ValueError, TypeError, AttributeError, _import("exceptions").UnsupportedAlgorithm) as error:
        raise ClientError(
            f"the public key {name} cannot encrypt: {error}; give an RSA public key as PEM"
        ) from None


def unwrap_key(pem: bytes, wrapped: bytes) -> bytes:
    """Returns the data key that was wrapped for a private key, RSA or EC. Raises Undecryptable."""
    serialization = _import("hazmat.primitives.serialization")
    try:
        private = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, _import("exceptions").UnsupportedAlgorithm) as error:
        raise Undecryptable(f"it is not a PEM file with an RSA or EC key without password: {error}") from None
    if isinstance(private, _import("hazmat.primitives.asymmetric.rsa").RSAPrivateKey):
        try:
            return _checked(private.decrypt(wrapped, _oaep()))
        except ValueError:
            raise Undecryptable("the data key was not encrypted for this RSA key") from None
    if isinstance(private, _import("hazmat.primitives.asymmetric.ec").EllipticCurvePrivateKey):
        return _checked(_unwrap_ecies(private, wrapped))
    raise Undecryptable(f"keys of type {type(private).__name__} do not encrypt; give an RSA or EC key")


def _oaep() -> Any:
    padding = _import("hazmat.primitives.asymmetric.padding")
    sha1 = _import("hazmat.primitives.hashes").SHA1  # The format's: every client uses it.
    return padding.OAEP(padding.MGF1(sha1()), sha1(), None)


def _unwrap_ecies(private: Any, wrapped: bytes) -> bytes:
    """Returns the data key from ECIES as BouncyCastle does it. Raises Undecryptable."""
    ec = _import("hazmat.primitives.asymmetric.ec")
    point_bytes = 1 + 2 * ((private.curve.key_size + 7) // 8)
    point, masked, tag = wrapped[:point_bytes], wrapped[point_bytes:-_MAC_BYTES], wrapped[-_MAC_BYTES:]
    try:
        ephemeral = ec.EllipticCurvePublicKey.from_encoded_point(private.curve, point)
    except ValueError:
        raise Undecryptable(
            "the data key was not encrypted for this EC key: it is of another curve"
        ) from None
    shared = private.exchange(ec.ECDH(), ephemeral)
    stream = _kdf2(point + shared, _MAC_KEY_BYTES + len(masked))
    expected = hmac.digest(stream[:_MAC_KEY_BYTES], masked + bytes(8), "sha1")
    if not hmac.compare_digest(expected, tag):
        raise Undecryptable("the data key was not encrypted for this EC key")
    return bytes(one ^ other for one, other in zip(masked, stream[_MAC_KEY_BYTES:], strict=True))


def _kdf2(secret: bytes, size: int) -> bytes:
    """Derives `size` bytes: KDF2 of IEEE 1363a with SHA-1."""
    blocks = [
        hashlib.sha1(secret + counter.to_bytes(4, "big")).digest()
        for counter in range(1, -(-size // hashlib.sha1().digest_size) + 1)
    ]
    return b"".join(blocks)[:size]


def _checked(data_key: bytes) -> bytes:
    if len(data_key) != _DATA_KEY_BYTES:
        raise Undecryptable(f"the data key has {len(data_key)} bytes, not {_DATA_KEY_BYTES}")
    return data_key


def _import(module: str) -> Any:
    """Imports a module of the package cryptography. Raises Undecryptable if it is not installed."""
    try:
        return import_module(f"cryptography.{module}")
    except ImportError as error:
        raise Undecryptable(
            "encryption needs a package that is not installed: pip install cryptography"
        ) from error
