"""The options with which the job reads a topic."""

from __future__ import annotations

import pytest
from magnetar.spark.compact import parser, source_options
from magnetar.spark.source.private_keys import DIRECTORY_VARIABLE, key_directory
from magnetar.spark.source_options import parse_options


def test_encrypted_messages_are_left_alone_also_where_there_are_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, "/keys")
    given = parser().parse_args(["--topic", "t", "--to", "/latest", "--tail"])
    options = parse_options(source_options(given, ["persistent://public/default/t"]))
    assert key_directory(options.crypto_key_dir) == ""
    assert options.crypto_failure == "consume"
