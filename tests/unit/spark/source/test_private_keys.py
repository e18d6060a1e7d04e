"""Private keys of executors come from files of one directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.client.errors import Undecryptable
from magnetar.spark.source.private_keys import DIRECTORY_VARIABLE, directory_reader, key_directory


def test_the_option_overrides_the_environment_and_an_empty_one_means_no_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    assert key_directory(None) == ""
    monkeypatch.setenv(DIRECTORY_VARIABLE, "/keys")
    assert (key_directory(None), key_directory("/other"), key_directory("")) == ("/keys", "/other", "")


def test_a_key_is_the_file_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "my key.pem").write_bytes(b"PEM")
    read = directory_reader(str(tmp_path))
    assert read("my key", {}) == b"PEM"
    with pytest.raises(Undecryptable, match=r"other\.pem: No such file"):
        read("other", {})


@pytest.mark.parametrize(
    "name", ["", ".hidden", "../outside", "sub/key", "/etc/key", "a\\b", "a\0b", "x" * 201]
)
def test_a_name_from_a_message_does_not_leave_the_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "keys" / "sub").mkdir(parents=True)
    for path in ("outside.pem", "keys/.hidden.pem", "keys/sub/key.pem"):
        (tmp_path / path).write_bytes(b"PEM")
    with pytest.raises(Undecryptable, match="not a file name"):
        directory_reader(str(tmp_path / "keys"))(name, {})
