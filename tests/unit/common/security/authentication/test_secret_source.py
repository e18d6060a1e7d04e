"""The forms in which settings name keys and files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from magnetar.common.security.authentication import secret_source
from magnetar.common.security.authentication.secret_source import SecretSource

RAW = b"\x00raw \xff\n"


def test_files_are_read_byte_by_byte_in_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    path.write_bytes(RAW)
    monkeypatch.chdir(tmp_path)
    for text in (f"file://{path}", f"file:{path}", f"  file://{path} ", str(path), "key", "file:key"):
        assert SecretSource("k", text).read() == RAW


@pytest.mark.parametrize(
    "text", ["data:;base64,AAEC", "data:application/octet-stream;base64,AAEC", "AAEC", "data:,%00%01%02"]
)
def test_values_can_hold_the_bytes_themselves(text: str) -> None:
    source = SecretSource("k", text)
    assert source.read() == b"\0\1\2"
    assert (source.path, source.has_changed()) == (None, False)


def test_both_alphabets_of_base64_are_read_with_and_without_padding() -> None:
    for text in ("+/+/AA==", "-_-_AA", "+/+/AA"):
        assert SecretSource("k", text).read() == b"\xfb\xff\xbf\x00"


@pytest.mark.parametrize(
    "text", ["!", "data:nothing", "data:;base64,!", "file:///no/such/file", "/no/such/file!"]
)
def test_errors_name_the_setting_and_no_secret(text: str) -> None:
    with pytest.raises(ValueError, match="tokenSecretKey") as caught:
        SecretSource("tokenSecretKey", text).read()
    assert "!" not in str(caught.value)


def test_files_that_are_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_source, "BYTES_MAX", 3)
    (tmp_path / "key").write_bytes(b"four")
    with pytest.raises(ValueError, match="more than 3 bytes"):
        SecretSource("k", str(tmp_path / "key")).read()


def test_a_replaced_file_has_changed_until_it_is_read(tmp_path: Path) -> None:
    path, link = tmp_path / "one", tmp_path / "key"
    path.write_bytes(b"1")
    (tmp_path / "two").write_bytes(b"2")
    link.symlink_to(path)
    source = SecretSource("k", str(link))
    source.read()
    assert not source.has_changed()
    link.unlink()
    assert not source.has_changed()
    link.symlink_to(tmp_path / "two")
    assert source.has_changed()
    assert source.read() == b"2"
    assert not source.has_changed()
    os.utime(tmp_path / "two", (1, 1))
    assert source.has_changed()
