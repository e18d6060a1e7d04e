"""The provider of user names and passwords: Pulsar's AuthenticationProviderBasic."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from magnetar.common.security.attempts import Attempts
from magnetar.common.security.authentication.apr1 import PREFIX, apr1
from magnetar.common.security.authentication.htpasswd import BCRYPT, parse_htpasswd
from magnetar.common.security.authentication.provider import Refusal
from magnetar.common.security.authentication.reloaded import Reloaded
from magnetar.common.security.authentication.slots import Slots
from magnetar.common.security.identity import BASIC, Credential, Identity

NAME: Final = "AuthenticationProviderBasic"

REMEMBERED_S: Final = 60.0
REMEMBERED_MAX: Final = 10_000
"""Accepted passwords are remembered, as a keyed hash, for so long, and at most so many."""

BCRYPT_BYTES_MAX: Final = 72
"""bcrypt ignores what follows; a longer password is refused instead."""

CREDENTIAL_BYTES_MAX: Final = 1024


class BasicProvider:
    """Checks passwords against a password file. An unknown user costs as much time as a known one."""

    name = NAME
    method = BASIC

    def __init__(self, conf: str, slots: Slots, monotonic: Callable[[], float]) -> None:
        """Read the password file. Raises ValueError that says what is wrong."""
        if not conf:
            raise ValueError("basicAuthConf is empty; set it to the password file")
        self._users = Reloaded("basicAuthConf", conf, parse_htpasswd)
        self._slots = slots
        self._monotonic = monotonic
        self._attempts = Attempts(monotonic)
        self._remember_key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, float] = OrderedDict()

    async def authenticate(self, credential: Credential, address: str) -> Identity:
        data = credential.data
        user_bytes, separator, password = data.partition(b":")
        if not separator or not user_bytes or len(data) > CREDENTIAL_BYTES_MAX or b"\0" in data:
            raise Refusal("malformed", "the credential is not user:password")
        try:
            user = user_bytes.decode()
        except UnicodeDecodeError as error:
            raise Refusal("malformed", "the user name is not UTF-8") from error
        stored = self._users.value.get(user)
        if stored is not None and self._is_remembered(user_bytes, password, stored):
            return _identity(user, stored)
        subjects = (f"address {address}", f"user {user}")
        if self._attempts.are_refused(subjects):
            raise Refusal(
                "too_many_failures", "too many failures of this address or user; refused for a while"
            )
        hashed = stored if stored is not None else self._stand_in(user_bytes)
        matches = await self._matches(password, hashed)
        if not matches or stored is None:
            self._attempts.note_failure(subjects)
            raise Refusal("password", "unknown user or wrong password")
        self._remember(user_bytes, password, stored)
        return _identity(user, stored)

    def is_valid(self, identity: Identity) -> bool:
        user, _, stored = identity.key.partition(":")
        return self._users.value.get(user) == stored

    async def reload(self) -> bool:
        return self._users.reload()

    async def close(self) -> None:
        """Nothing is held."""

    def _stand_in(self, user: bytes) -> str:
        """The hash that is computed for an unknown user: always the same one for the same name, and each kind
        of hash as often as users have it, so that the time does not tell.
        """
        hashes = tuple(self._users.value.values())
        digest = hmac.new(self._remember_key, user, sha256).digest()
        return hashes[int.from_bytes(digest[:8], "big") % len(hashes)]

    async def _matches(self, password: bytes, hashed: str) -> bool:
        if hashed.startswith(PREFIX):
            salt = hashed.split("$")[2]
            return hmac.compare_digest(apr1(password, salt).encode(), hashed.encode())
        assert hashed.startswith(BCRYPT)
        if len(password) > BCRYPT_BYTES_MAX:
            return False
        import bcrypt

        async with self._slots.slot():
            return await asyncio.to_thread(bcrypt.checkpw, password, hashed.encode())

    def _digest(self, user: bytes, password: bytes, stored: str) -> bytes:
        """A keyed hash that also changes with the stored hash: a changed password is not remembered."""
        message = b"\0".join((user, stored.encode(), password))
        return hmac.new(self._remember_key, message, sha256).digest()

    def _is_remembered(self, user: bytes, password: bytes, stored: str) -> bool:
        until = self._remembered.get(self._digest(user, password, stored))
        return until is not None and self._monotonic() < until

    def _remember(self, user: bytes, password: bytes, stored: str) -> None:
        digest = self._digest(user, password, stored)
        self._remembered[digest] = self._monotonic() + REMEMBERED_S
        self._remembered.move_to_end(digest)
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)


def _identity(user: str, stored: str) -> Identity:
    return Identity(user, BASIC, None, f"{user}:{stored}", NAME)
