"""Passwords: hashes, unknown users, changed files, remembered passwords, and guessing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import bcrypt
import pytest
from magnetar.common.errors import ServiceNotReady
from magnetar.common.security.attempts import FAILURES_MAX
from magnetar.common.security.authentication import basic, slots
from magnetar.common.security.authentication.apr1 import apr1
from magnetar.common.security.authentication.basic import REMEMBERED_S, BasicProvider
from magnetar.common.security.authentication.provider import Refusal
from magnetar.common.security.authentication.slots import Slots
from magnetar.common.security.identity import Credential, Identity

from tests.unit.common.security.authentication.signing import Time, accepted, run

APR1 = apr1(b"secret", "salt")
BCRYPT = bcrypt.hashpw(b"other", bcrypt.gensalt(4)).decode()


def made(
    tmp_path: Path, content: str = f"alice:{APR1}\nbob:{BCRYPT}\n", now: Time | None = None
) -> BasicProvider:
    path = tmp_path / "htpasswd"
    path.write_text(content)
    return BasicProvider(str(path), Slots(), now or Time())


def ask(asked: BasicProvider, user: bytes, address: str = "10.0.0.1") -> Identity:
    return accepted(asked, Credential("basic", user), address)


def refused(asked: BasicProvider, user: bytes, address: str = "10.0.0.1") -> str:
    with pytest.raises(Refusal) as caught:
        ask(asked, user, address)
    return caught.value.reason


def test_users_are_known_by_their_passwords(tmp_path: Path) -> None:
    asked = made(tmp_path)
    assert ask(asked, b"alice:secret").role == "alice"
    assert ask(asked, b"bob:other").role == "bob"
    for wrong in (b"alice:other", b"bob:secret", b"carol:secret", b"alice:", b"Alice:secret"):
        assert refused(asked, wrong) == "password"


@pytest.mark.parametrize(
    "data", [b"", b"alice", b":secret", b"\xff:x", b"alice:\0", b"alice:" + b"x" * 2_000]
)
def test_what_is_no_user_and_password_is_refused(tmp_path: Path, data: bytes) -> None:
    assert refused(made(tmp_path), data) == "malformed"


def test_a_password_may_contain_colons(tmp_path: Path) -> None:
    assert ask(made(tmp_path, f"u:{apr1(b'a:b', 'x')}\n"), b"u:a:b").role == "u"


def test_bcrypt_never_checks_a_part_of_a_password(tmp_path: Path) -> None:
    long = b"x" * 72
    asked = made(tmp_path, f"u:{bcrypt.hashpw(long, bcrypt.gensalt(4)).decode()}\n")
    assert ask(asked, b"u:" + long).role == "u"
    assert refused(asked, b"u:" + long + b"y") == "password"


def test_an_unknown_user_costs_a_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = made(tmp_path, f"alice:{APR1}\n")
    hashed: list[bytes] = []

    def counted(password: bytes, salt: str) -> str:
        hashed.append(password)
        return apr1(password, salt)

    monkeypatch.setattr(basic, "apr1", counted)
    assert refused(asked, b"carol:guess") == "password"
    assert hashed == [b"guess"]


def test_an_accepted_password_is_not_hashed_again_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Time()
    asked = made(tmp_path, now=now)
    ask(asked, b"alice:secret")
    monkeypatch.setattr(basic, "apr1", lambda password, salt: "wrong")
    now.now += REMEMBERED_S - 1
    ask(asked, b"alice:secret")
    assert refused(asked, b"alice:Secret") == "password"
    now.now += 1
    assert refused(asked, b"alice:secret") == "password"


def test_removed_users_and_changed_passwords_are_noticed(tmp_path: Path) -> None:
    asked = made(tmp_path)
    alice, bob = ask(asked, b"alice:secret"), ask(asked, b"bob:other")
    path = tmp_path / "htpasswd"
    path.write_text(f"alice:{apr1(b'new', 'y')}\n")
    os.utime(path, (1, 1))
    assert run(asked.reload()) is True
    assert (asked.is_valid(alice), asked.is_valid(bob)) == (False, False)
    assert refused(asked, b"alice:secret") == "password"
    assert asked.is_valid(ask(asked, b"alice:new"))
    path.write_text("broken")
    assert run(asked.reload()) is False
    assert ask(asked, b"alice:new").role == "alice"


def test_guessing_is_refused_unasked_and_remembered_passwords_still_hold(tmp_path: Path) -> None:
    asked = made(tmp_path)
    ask(asked, b"bob:other")
    for number in range(FAILURES_MAX):
        assert refused(asked, b"alice:guess", f"10.0.1.{number}") == "password"
    assert refused(asked, b"alice:secret", "10.0.2.1") == "too_many_failures"
    for _ in range(FAILURES_MAX):
        refused(asked, b"bob:guess", "10.0.3.1")
    assert refused(asked, b"carol:x", "10.0.3.1") == "too_many_failures"
    assert ask(asked, b"bob:other", "10.0.3.1").role == "bob"


def test_too_many_expensive_checks_at_once_are_told_to_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "WAITING_MAX", 0)
    monkeypatch.setattr(slots, "AT_ONCE_MAX", 1)
    asked = made(tmp_path, f"bob:{BCRYPT}\n")

    async def main() -> list[object]:
        checks = (asked.authenticate(Credential("basic", b"bob:other"), "h") for _ in range(3))
        return await asyncio.gather(*checks, return_exceptions=True)

    kinds = sorted(type(each).__name__ for each in run(main()))
    assert kinds == ["Identity", ServiceNotReady.__name__, ServiceNotReady.__name__]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("alice", "line 1 of the password file is not user:hash"),
        (f"a:{APR1}:x", "line 1 of the password file is not user:hash"),
        (
            f"a:{APR1}\n\nb:{{SHA}}qUqP5cyxm6YcTAhz05Hph5gvu9M=",
            "line 3 of the password file: the hash of 'b'",
        ),
        ("a:rqXexS6ZhobKA", "neither .apr1. nor bcrypt"),
        (f"a:{APR1}\na:{APR1}", "repeats the user 'a'"),
        ("a:$2y$31$" + "a" * 53, "bcrypt cost of 'a' is 31"),
        ("# nothing\n", "no users"),
    ],
)
def test_a_password_file_that_cannot_be_used_stops_the_start(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        made(tmp_path, content)
    assert "basicAuthConf" in str(caught.value)
    assert "qUqP5cyxm6YcTAhz05Hph5gvu9M" not in str(caught.value)


def test_an_empty_setting_stops_the_start() -> None:
    with pytest.raises(ValueError, match="basicAuthConf is empty"):
        BasicProvider("", Slots(), Time())
