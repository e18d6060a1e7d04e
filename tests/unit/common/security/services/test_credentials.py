"""Certificates in files: what is read, what is refused, and when replaced files are used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from magnetar.common.errors import ConfigError
from magnetar.common.security.services.credentials import CredentialFiles, ServiceCredentials, loaded

from tests.certificates import Authority, Pair


def files_of(authority: Authority, pair: Pair) -> CredentialFiles:
    return CredentialFiles(trust_certs=authority.certificate, certificate=pair.certificate, key=pair.key)


def replace_file(path: Path, content: bytes) -> None:
    copy = path.with_suffix(".new")
    copy.write_bytes(content)
    os.replace(copy, path)


def test_files_that_stay_are_not_read_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    credentials = ServiceCredentials(files_of(authority, authority.issue("one")))
    assert not credentials.look()
    assert credentials.generation == 0


def test_a_replaced_pair_is_used_once_both_files_match(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, other = authority.issue("one"), authority.issue("other")
    credentials = ServiceCredentials(files_of(authority, pair))
    replace_file(pair.certificate, other.certificate.read_bytes())
    assert not credentials.look(), "a certificate without its key must not be used"
    assert credentials.generation == 0
    replace_file(pair.key, other.key.read_bytes())
    assert credentials.look()
    assert credentials.generation == 1


def test_a_replaced_authority_is_used(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    credentials = ServiceCredentials(files_of(authority, authority.issue("one")))
    replace_file(authority.certificate, other.certificate.read_bytes())
    assert credentials.look()


@pytest.mark.parametrize("damage", ["removed", "cut", "text"])
def test_damaged_files_leave_the_earlier_credentials(tmp_path: Path, damage: str) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("one")
    credentials = ServiceCredentials(files_of(authority, pair))
    whole = pair.certificate.read_bytes()
    if damage == "removed":
        pair.certificate.unlink()
    else:
        replace_file(pair.certificate, whole[: len(whole) // 2] if damage == "cut" else b"text")
    assert not credentials.look()
    assert credentials.generation == 0
    credentials.channel()


def test_problems_of_files_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.issue("one"), authority.issue("other")
    with pytest.raises(ConfigError, match="cannot be used together"):
        loaded(CredentialFiles(trust_certs=authority.certificate, certificate=one.certificate, key=other.key))
    with pytest.raises(ConfigError, match="given together or not at all"):
        loaded(CredentialFiles(trust_certs=authority.certificate, certificate=one.certificate))
    with pytest.raises(ConfigError, match=r"cannot read .*missing\.pem"):
        loaded(CredentialFiles(trust_certs=tmp_path / "missing.pem"))
    assert loaded(None) is None
