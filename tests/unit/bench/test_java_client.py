"""The loads of Apache's Java client where there is no Java."""

from __future__ import annotations

import pytest

from bench.java_client import client_jars


def test_without_java_the_reason_is_told_and_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    said: list[str] = []
    assert client_jars(said.append) == "`java` is not installed"
    assert said == []
