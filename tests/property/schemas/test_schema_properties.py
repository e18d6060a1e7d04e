"""Schema rules on random definitions: verdicts against a real decoder, and rules that hold for every text."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.errors import IncompatibleSchema, InvalidSchema
from magnetar.common.schemas.avro_resolution import PairBudget, misfit_of
from magnetar.common.schemas.definition import SchemaDefinition, SchemaType
from magnetar.common.schemas.key_value import ENCODING, INLINE, join
from magnetar.common.schemas.parsed_definitions import DefinitionCache, parsed_definition
from magnetar.common.schemas.rules import (
    Strategy,
    check_put,
    check_subscribe,
    find,
    same,
    validate,
)

from tests.property.schemas.definitions import (
    damaged,
    evolved,
    random_definition,
    random_value,
    reformatted,
)

SEEDS = st.integers(0, 2**32 - 1)
STRATEGIES = st.sampled_from(list(Strategy))


def avro(text: str) -> SchemaDefinition:
    return SchemaDefinition(SchemaType.AVRO, text.encode())


@given(SEEDS)
def test_what_is_judged_readable_is_read_by_another_implementation(seed: int) -> None:
    rng = random.Random(seed)
    written = random_definition(rng)
    read = evolved(rng, written, gentle=True)
    if not _reads(read, written):
        return
    writer = fastavro.parse_schema(json.loads(json.dumps(written)))
    reader = fastavro.parse_schema(json.loads(json.dumps(read)))
    for _ in range(3):
        data = io.BytesIO()
        fastavro.schemaless_writer(data, writer, random_value(rng, written))
        data.seek(0)
        found: Any = fastavro.schemaless_reader(data, writer, reader)
        assert set(found) == {field["name"] for field in read["fields"]}
        assert data.read() == b""


def test_random_changes_give_both_verdicts() -> None:
    verdicts = [_reads(evolved(rng, one, gentle=True), one) for rng, one in _samples(200)]
    assert 40 < sum(verdicts) < 190


@given(SEEDS)
def test_a_definition_reads_its_own_data(seed: int) -> None:
    definition = random_definition(random.Random(seed))
    text = json.dumps(definition).encode()
    # Two caches, so that the types are not the same objects.
    reader, writer = DefinitionCache().get(text), DefinitionCache().get(text)
    assert misfit_of(reader, writer, PairBudget()) is None


@given(SEEDS, STRATEGIES)
def test_verdicts_do_not_depend_on_white_space_or_the_order_of_keys(seed: int, strategy: Strategy) -> None:
    rng = random.Random(seed)
    old = random_definition(rng)
    new = evolved(rng, old)
    once = _verdict(json.dumps(old), json.dumps(new), strategy)
    assert _verdict(reformatted(rng, old), reformatted(rng, new), strategy) == once


@given(SEEDS)
def test_sameness_is_an_equivalence_that_ignores_form(seed: int) -> None:
    rng = random.Random(seed)
    one = random_definition(rng)
    others = [evolved(rng, one), damaged(rng, one)]
    texts = [json.dumps(one), reformatted(rng, one), *map(json.dumps, others), reformatted(rng, others[0])]
    alike = [[same(avro(left), avro(right)) for right in texts] for left in texts]
    assert alike[0][1]
    # An invalid definition is the same as its own text only.
    assert alike[2][4] or _refusal(lambda: validate(avro(texts[2])))
    for left, row in enumerate(alike):
        assert row[left]
        for right, is_same in enumerate(row):
            assert is_same == alike[right][left]
            assert not is_same or row == alike[right]


@given(SEEDS, STRATEGIES)
def test_a_damaged_definition_is_refused_by_the_rules_own_errors(seed: int, strategy: Strategy) -> None:
    rng = random.Random(seed)
    definition = random_definition(rng)
    broken = damaged(rng, definition)
    for kind in (SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF):
        new = SchemaDefinition(kind, json.dumps(broken).encode())
        _only_own_errors(new, SchemaDefinition(kind, json.dumps(definition).encode()), strategy)


@given(SEEDS, STRATEGIES)
def test_arbitrary_data_is_refused_by_the_rules_own_errors(seed: int, strategy: Strategy) -> None:
    rng = random.Random(seed)
    new = _arbitrary(rng, rng.randint(-2, 23))
    _only_own_errors(new, _arbitrary(rng, rng.randint(-2, 23)), strategy)
    _only_own_errors(new, _arbitrary(rng, new.type), strategy)


def _arbitrary(rng: random.Random, kind: int) -> SchemaDefinition:
    depth = rng.randint(1, 3_000)
    data = rng.choice(
        (
            rng.randbytes(rng.randint(0, 40)),
            rng.choice(
                (b"", b"null", b'"int"', b"[]", b"{}", b'{"type":"object","id":3}', b"\xff", b"1e999")
            ),
            b'{"type":"array","items":' * depth,
            b"[" * depth + b"]" * depth,
            json.dumps(damaged(rng, random_definition(rng))).encode(),
            json.dumps(damaged(rng, _NATIVE)).encode(),
        )
    )
    if rng.random() < 0.5:
        data = join(data, rng.choice((b"", b"null", b'"int"', data)))
    properties = {name: rng.choice(_TEXTS) for name in rng.sample(_NAMES, rng.randint(0, len(_NAMES)))}
    return SchemaDefinition(kind, data, properties)


_NAMES: Final = [*(f"{side}.schema.{key}" for side in ("key", "value") for key in ("type", "properties"))]
_NAMES.append(ENCODING)
_TEXTS: Final = (
    "STRING",
    "AVRO",
    "KEY_VALUE",
    "PROTOBUF_NATIVE",
    "BYTES",
    "",
    "{}",
    "[]",
    "{",
    '{"a":1}',
    INLINE,
)
_NATIVE: Final = {
    "fileDescriptorSet": "CiQKB2EucHJvdG8SAXAiDgoBTRIJCgFhGAEgASgFYgZwcm90bzM=",
    "rootMessageTypeName": "p.M",
    "rootFileDescriptorName": "a.proto",
}


@pytest.mark.full
def test_more_of_what_is_judged_readable_is_read() -> None:
    for rng, written in _samples(5_000):
        read = evolved(rng, written, gentle=True)
        if _reads(read, written):
            data = io.BytesIO()
            fastavro.schemaless_writer(data, fastavro.parse_schema(written), random_value(rng, written))
            data.seek(0)
            fastavro.schemaless_reader(data, fastavro.parse_schema(written), fastavro.parse_schema(read))


def _samples(count: int) -> list[tuple[random.Random, Any]]:
    rngs = [random.Random(seed) for seed in range(count)]
    return [(rng, random_definition(rng)) for rng in rngs]


def _reads(reader: Any, writer: Any) -> bool:
    try:
        read, written = (parsed_definition(json.dumps(each).encode()) for each in (reader, writer))
    except InvalidSchema:
        return False
    return misfit_of(read, written, PairBudget()) is None


def _verdict(old: str, new: str, strategy: Strategy) -> str:
    return _refusal(partial(check_put, avro(new), [(0, avro(old))], strategy))


def _only_own_errors(new: SchemaDefinition, old: SchemaDefinition, strategy: Strategy) -> None:
    find(new, [(0, old)])
    assert _refusal(lambda: validate(new)).isprintable()
    for check in (check_put, check_subscribe):
        assert _refusal(partial(check, new, [(0, old)], strategy)).isprintable()


def _refusal(check: Callable[[], None]) -> str:
    """Returns the message of a refusal; empty when the check passes."""
    try:
        check()
    except IncompatibleSchema as error:
        return str(error)
    return ""
