"""Manifests: canonical bytes, and nothing believed that does not agree with itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from magnetar.ledger.cold.manifest import Manifest, ManifestInvalid, Part

GOLDEN = Path(__file__).parents[3] / "golden" / "cold" / "v1" / "manifest.json"


def part(number: int, first: int, last: int, rows: int, raw: int = 0) -> Part:
    return Part(
        name=f"part-{number:05d}.parquet",
        first_entry_id=first,
        last_entry_id=last,
        rows=rows,
        entries=last - first + 1,
        raw_entries=raw,
        byte_length=1000 + number,
        sha256=bytes([number]) * 32,
        payload_crc32c=0xFFFFFFFF - number,
        payload_bytes=5000,
        raw_crc32c=number,
        raw_bytes=number * 10,
        footer_crc32c=0x12345678,
        footer_bytes=500 + number,
    )


MANIFEST = Manifest(
    topic="persistent://public/default/ürders-partition-3",
    creation_id=2**64 - 1,
    ledger_id=42,
    ledger_key=2**63 + 1,
    attempt=bytes(range(16)),
    first_entry_id=0,
    last_entry_id=29,
    entries=30,
    rows=1003,
    raw_entries=2,
    first_index=7,
    max_publish_time_ms=1_700_000_000_000,
    exact=False,
    parts=(part(0, 0, 9, 500, 1), part(1, 10, 10, 3), part(2, 11, 29, 500, 1)),
    created_ms=1_700_000_100_000,
    release="0.1.0",
)


def changed(**values: Any) -> bytes:
    return json.dumps({**json.loads(MANIFEST.to_json()), **values}).encode()


def test_a_manifest_comes_back() -> None:
    assert Manifest.from_json(MANIFEST.to_json()) == MANIFEST
    assert MANIFEST.object_bytes == 3003


def test_the_bytes_are_the_golden_ones() -> None:
    """Their SHA-256 stands in metadata: they may never change for this version."""
    assert MANIFEST.to_json() == GOLDEN.read_bytes()


def test_keys_of_later_releases_are_ignored() -> None:
    assert Manifest.from_json(changed(later=[1, 2])) == MANIFEST


def test_an_empty_ledger_has_no_parts() -> None:
    empty = replace(MANIFEST, last_entry_id=-1, entries=0, rows=0, raw_entries=0, parts=())
    assert Manifest.from_json(empty.to_json()) == empty


def test_a_later_version_is_refused_and_says_what_to_do() -> None:
    with pytest.raises(ManifestInvalid, match=r"version 2; this release reads version 1. Run the release"):
        Manifest.from_json(changed(format_version=2))


def test_the_part_of_an_entry_is_found() -> None:
    assert [MANIFEST.part_of(entry_id) for entry_id in (0, 9, 10, 11, 29)] == [0, 0, 1, 2, 2]
    for entry_id in (-1, 30):
        with pytest.raises(IndexError):
            MANIFEST.part_of(entry_id)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_manifest_that_is_not_a_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestInvalid):
        Manifest.from_json(data)


@pytest.mark.parametrize("name", sorted(json.loads(MANIFEST.to_json())))
@pytest.mark.parametrize("value", [None, -2, 1.5, {}, "x", True])
def test_a_value_of_another_type_is_refused_and_named(name: str, value: object) -> None:
    if (name in ("topic", "release") and value == "x") or (name == "exact" and value is True):
        return
    with pytest.raises(ManifestInvalid, match=name.removesuffix("s") if name == "parts" else name):
        Manifest.from_json(changed(**{name: value}))


@pytest.mark.parametrize("name", sorted(json.loads(MANIFEST.to_json())["parts"][0]))
def test_a_part_without_one_of_its_values_is_refused(name: str) -> None:
    parts = json.loads(MANIFEST.to_json())["parts"]
    del parts[1][name]
    with pytest.raises(ManifestInvalid, match=f"{name} is missing"):
        Manifest.from_json(changed(parts=parts))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"entries": 31}, "31 entries"),
        ({"rows": 1}, "1 rows"),
        ({"raw_entries": 0}, "0 raw_entries"),
        ({"last_entry_id": 30}, "ends at entry 30"),
        ({"first_entry_id": 1}, "part-00000.parquet from entry 0, expected 1"),
        ({"parts": ()}, "ends at entry 29"),
        ({"parts": MANIFEST.parts[1:]}, "expected 0"),
        ({"parts": (MANIFEST.parts[0], MANIFEST.parts[2])}, "expected 10"),
        ({"parts": (*MANIFEST.parts[:2], part(2, 11, 28, 500, 1))}, "its parts at 28"),
        ({"parts": (*MANIFEST.parts[:2], replace(MANIFEST.parts[2], entries=18))}, "has 18 entries"),
        ({"parts": (*MANIFEST.parts[:2], replace(MANIFEST.parts[2], rows=18))}, "18 rows"),
        ({"parts": (*MANIFEST.parts[:2], replace(MANIFEST.parts[2], name="../x"))}, "named"),
        ({"parts": (*MANIFEST.parts[:2], replace(MANIFEST.parts[2], name="part-00001.parquet"))}, "twice"),
        (
            {"parts": (*MANIFEST.parts[:2], replace(MANIFEST.parts[2], footer_bytes=1003))},
            "longer than it is",
        ),
        ({"attempt": b"short"}, "attempt of 5 bytes"),
    ],
)
def test_inconsistent_manifest_is_neither_written_nor_read(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ManifestInvalid, match=why):
        replace(MANIFEST, **wrong).to_json()


def test_a_changed_count_is_found_when_read() -> None:
    with pytest.raises(ManifestInvalid, match="31 entries"):
        Manifest.from_json(changed(entries=31))
