"""Random frames of a client: ordinary, odd and broken ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from tests.unit.common.wire import frames

UINT64 = st.one_of(
    st.integers(0, 300),
    st.integers(0, 9).flatmap(lambda size: st.integers(-2, 2).map(lambda off: max(0, (1 << 7 * size) + off))),
    st.integers(0, 2**64 - 1),
)
"""Numbers, above all around those where a varint grows."""

PRODUCERS = st.one_of(st.integers(1, 2), UINT64)

PAYLOADS = st.one_of(st.binary(max_size=40), st.sampled_from([0, 100, 4_090, 9_000]).map(bytes))


@st.composite
def send_fields(draw: st.DrawFn) -> dict[str, Any]:
    """The optional fields of a Send; usually none."""
    usual: dict[str, Any] = {}
    if draw(st.integers(0, 2)):
        return usual
    if not draw(st.integers(0, 2)):
        usual = {"txnid_least_bits": draw(UINT64), "txnid_most_bits": draw(st.integers(0, 2))}
    optional: dict[str, st.SearchStrategy[Any]] = {
        "num_messages": st.integers(1, 2**21),
        "highest_sequence_id": UINT64,
        "is_chunk": st.booleans(),
        "marker": st.booleans(),
        "txnid_least_bits": UINT64,
        "message_id": st.just({"ledgerId": 1, "entryId": 2}),
    }
    chosen = draw(st.sets(st.sampled_from(list(optional)), max_size=3))
    return {**usual, **{name: draw(optional[name]) for name in sorted(chosen)}}


@st.composite
def send_frames(draw: st.DrawFn) -> bytes:
    """A Send, perhaps with a wrong checksum, without one, or with its command in an odd form."""
    command = frames.send_command(draw(PRODUCERS), draw(UINT64), **draw(send_fields()))
    if not draw(st.integers(0, 7)):
        command = draw(odd_forms(command))
    payload = draw(PAYLOADS)
    kind = draw(st.integers(0, 11))
    if kind == 0:
        return frames.send_frame(command, frames.entry(payload, crc_xor=1))
    if kind == 1:
        return frames.send_frame(command, frames.body(payload))
    if kind == 2:
        return frames.send_frame(command, frames.with_entry_metadata(frames.entry(payload)))
    return frames.send_frame(command, frames.entry(payload))


@st.composite
def odd_forms(draw: st.DrawFn, command: bytes) -> bytes:
    """The same command as other encoders might write it."""
    unknown = b"\xf8\x01\x05"
    kind, rest = command[:2], command[2:]
    return draw(
        st.sampled_from(
            [
                rest + kind,
                kind + unknown + rest,
                command + unknown,
                kind + kind + rest,
                command + command[2:],
                bytes((8, kind[1] | 0x80, 0)) + rest,
            ]
        )
    )


@st.composite
def send_series(draw: st.DrawFn) -> bytes:
    """What a busy producer sends: many Sends, sequence ids counting up."""
    producer, first = draw(st.integers(1, 2)), draw(UINT64.filter(lambda value: value < 2**64 - 40))
    count, payload = draw(st.integers(1, 30)), draw(PAYLOADS)
    return b"".join(frames.send(producer, first + index, payload) for index in range(count))


@st.composite
def ack_series(draw: st.DrawFn) -> bytes:
    """What a busy shared consumer sends: many Acks, their entry ids in any order."""
    consumer, ledger = draw(st.integers(1, 2)), draw(UINT64)
    ids = draw(st.lists(UINT64, min_size=1, max_size=30))
    return b"".join(ack_frame(consumer, ledger, entry) for entry in ids)


@st.composite
def ack_groups(draw: st.DrawFn) -> bytes:
    """What a client that groups its acknowledgements sends: many ids in one Ack, in any order."""
    ledgers = draw(st.lists(UINT64, min_size=1, max_size=3))
    ids = draw(
        st.lists(st.tuples(st.sampled_from(ledgers), st.integers(0, 3) | UINT64), min_size=1, max_size=300)
    )
    fields: dict[str, Any] = {"request_id": draw(UINT64)} if draw(st.booleans()) else {}
    frame = ack_group_frame(draw(st.integers(1, 2)), ids, **fields)
    return frame if draw(st.integers(0, 7)) else frames.simple_bytes(draw(odd_forms(frame[8:])))


@st.composite
def transactional_acks(draw: st.DrawFn) -> bytes:
    """Acknowledgements of one message after the other, each in one of a few transactions."""
    transactions = draw(st.lists(st.tuples(UINT64, UINT64), min_size=1, max_size=2))
    entry_ids = draw(st.lists(st.integers(0, 300) | UINT64, min_size=1, max_size=20))
    parts = []
    for number, entry_id in enumerate(entry_ids):
        most, least = draw(st.sampled_from(transactions))
        fields: dict[str, Any] = {"txnid_least_bits": least, "txnid_most_bits": most}
        if draw(st.booleans()):
            fields["request_id"] = number
        parts.append(ack_frame(draw(st.integers(1, 2)), 3, entry_id, **fields))
    return b"".join(parts)


def ack_group_frame(consumer_id: int, ids: Iterable[tuple[int, int]], **fields: Any) -> bytes:
    """One individual Ack of (ledger id, entry id)."""
    message_id = [{"ledgerId": ledger_id, "entryId": entry_id} for ledger_id, entry_id in ids]
    return frames.simple(ack={"consumer_id": consumer_id, "ack_type": 0, "message_id": message_id, **fields})


def ack_frame(consumer_id: int, ledger_id: int, entry_id: int, **fields: Any) -> bytes:
    message_id = {"ledgerId": ledger_id, "entryId": entry_id}
    return frames.simple(
        ack={"consumer_id": consumer_id, "ack_type": 0, "message_id": [message_id], **fields}
    )


@st.composite
def odd_acks(draw: st.DrawFn) -> bytes:
    """Acks that are not the plain kind, or are in an odd form."""
    plain = ack_frame(draw(UINT64), draw(UINT64), draw(UINT64))
    unusual: list[st.SearchStrategy[bytes]] = [
        UINT64.map(lambda request: ack_frame(1, 2, 3, request_id=request)),
        st.just(ack_frame(1, 2, 3, ack_type=1)),
        st.just(ack_frame(1, 2, 3, txnid_most_bits=1)),
        st.just(ack_frame(1, 2, 3, txnid_least_bits=1, txnid_most_bits=2, ack_type=1)),
        st.just(ack_frame(1, 2, 3, message_id=[{"ledgerId": 1, "entryId": 2, "ack_set": [5]}])),
        st.just(ack_frame(1, 2, 3, message_id=[{"ledgerId": 1, "entryId": 2, "batch_index": 0}])),
        st.just(ack_frame(1, 2, 3, message_id=[{"ledgerId": 1, "entryId": number} for number in (2, 3)])),
        odd_forms(plain[8:]).map(frames.simple_bytes),
    ]
    return draw(st.one_of(unusual))


OTHERS = st.sampled_from(
    [
        frames.simple(ping={}),
        frames.simple(flow={"consumer_id": 1, "messagePermits": 500}),
        frames.simple(
            ack={"consumer_id": 1, "ack_type": 0, "message_id": [{"ledgerId": 3, "entryId": 2**40}]}
        ),
        frames.simple(
            producer={
                "topic": "t",
                "producer_id": 1,
                "request_id": 2,
                "metadata": [{"key": "k", "value": "v"}],
            }
        ),
    ]
)

STREAMS = st.lists(
    st.one_of(
        send_series(), send_frames(), ack_series(), ack_groups(), transactional_acks(), odd_acks(), OTHERS
    ),
    min_size=1,
    max_size=8,
).map(b"".join)
"""Whole frames, one after the other."""


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    """The pieces of `data` between sorted positions."""
    edges = [0, *sorted(min(each, len(data)) for each in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges) if start < end]
