"""Where objects lie: paths that every reader takes as they are, and that say what they are of."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.cold.layout import attempt_path, escape, parse_attempt_path, part_name, unescape

ATTEMPT = bytes(range(16))
TOPIC = TopicName.parse("persistent://public/default/orders-partition-3")

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1, max_size=300)


def test_the_path_of_an_attempt_is_the_documented_one() -> None:
    path = attempt_path(TOPIC, 42, ATTEMPT)
    assert path == ("public/default/orders-partition-3/ledger=42/attempt=000102030405060708090a0b0c0d0e0f")
    assert part_name(0) == "part-00000.parquet"
    assert part_name(12345) == "part-12345.parquet"


def test_a_path_says_what_it_is_of() -> None:
    found = parse_attempt_path(attempt_path(TOPIC, 42, ATTEMPT))
    assert found is not None
    assert (found.tenant, found.namespace, found.local_name) == ("public", "default", "orders-partition-3")
    assert (found.ledger_id, found.attempt, found.exact) == (42, ATTEMPT, True)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "public/default/orders",
        "public/default/orders/ledger=42",
        "public/default/orders/ledger=042/attempt=" + "00" * 16,
        "public/default/orders/ledger=-1/attempt=" + "00" * 16,
        "public/default/orders/ledger=42/attempt=" + "00" * 15,
        "public/default/orders/ledger=42/attempt=" + "0A" * 16,
        "public/default/orders/ledger=42/attempt=" + "00" * 16 + "/",
        "/public/default/orders/ledger=42/attempt=" + "00" * 16,
        "public/default/a b/ledger=42/attempt=" + "00" * 16,
        "public/default/!FF/ledger=42/attempt=" + "00" * 16,
        "default/orders/ledger=42/attempt=" + "00" * 16,
    ],
)
def test_other_paths_are_not_those_of_attempts(path: str) -> None:
    assert parse_attempt_path(path) is None


@pytest.mark.parametrize(
    "name", ["_SUCCESS", ".hidden", "a=b", "a:b", "*?[x]{y}", "a%2Fb", "ä !\\~", "..", "!"]
)
def test_names_that_readers_take_for_something_else_are_escaped(name: str) -> None:
    segment = escape(name)
    assert re.fullmatch(r"(?![_.])[-_.!A-Za-z0-9]+", segment)
    assert unescape(segment) == name


@given(NAMES)
def test_every_name_is_one_segment_and_comes_back(name: str) -> None:
    segment = escape(name)
    assert re.fullmatch(r"(?![_.])[-_.!A-Za-z0-9]{1,200}", segment)
    back = unescape(segment)
    if "!-" in segment:
        beginning, _, digest = back.rpartition("!-")
        assert name.startswith(beginning)
        assert len(digest) == 64
    else:
        assert back == name


@given(st.sets(NAMES, min_size=2, max_size=8))
def test_different_names_are_different_segments(names: set[str]) -> None:
    assert len({escape(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    "name", ["x" * 4000, "ü" * 900, "7" * 300, "=" * 119 + "y" * 300, "x" * 119 + "=" * 300]
)
def test_a_long_name_is_cut_and_told_apart_by_a_hash(name: str) -> None:
    topic = TopicName.parse(f"persistent://public/default/{name}")
    path = attempt_path(topic, 1, ATTEMPT)
    assert max(map(len, path.split("/"))) <= 200
    found = parse_attempt_path(path)
    assert found is not None
    assert not found.exact
    assert escape(name) != escape(name + "x")
