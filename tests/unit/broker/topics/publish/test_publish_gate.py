from __future__ import annotations

from dataclasses import replace

from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.config import PolicyConfig, RateConfig
from magnetar.broker.policies.effective_policies import EffectivePolicies, Rate, resolve
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.publish_gate import FirstRefused, PublishGate, PublishLimits
from magnetar.common.metadata.values import Policies
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.varint import encode_varint

from tests.integration.raw.transcript import payload_frame
from tests.unit.broker.topics.fakes import FakePeer


class SteppedClock:
    """Goes on when the test says so."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 1_000_000


def policies(**changes: object) -> EffectivePolicies:
    return replace(resolve(BrokerConfig(), Policies(), Policies()), **changes)  # type: ignore[arg-type]


def entry(payload: bytes = b"x", **metadata: object) -> bytes:
    """As it is stored: from the magic number on."""
    value = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **metadata)  # type: ignore[arg-type]
    frame = payload_frame(1, 0, payload, value)
    command_bytes = int.from_bytes(frame[4:8], "big")
    return frame[8 + command_bytes :]


def run(*entries: bytes, counts: list[int] | None = None) -> SendRun:
    ids = [encode_varint(number) for number in range(len(entries))]
    return SendRun(1, [*entries], ids, None, counts, False, False, sum(map(len, entries)))


def opened(gate_policies: EffectivePolicies, clock: SteppedClock | None = None) -> PublishGate | None:
    return PublishLimits(BrokerConfig(), clock or SteppedClock()).gate(gate_policies)


def producer() -> tuple[Producer, FakePeer]:
    peer = FakePeer()
    return Producer(1, "p", 0, peer, {}, b"", 0), peer


def test_without_limits_there_is_no_gate() -> None:
    assert opened(policies()) is None
    assert opened(policies(max_message_bytes=BrokerConfig().publish.message_bytes_max)) is None


def refused(gate: PublishGate | None, *entries: bytes) -> tuple[int, list[int], set[str]]:
    """The index of the first one that a gate refuses, the ids of all refused with it, and their codes."""
    assert gate is not None
    first = gate.admit(producer()[0], run(*entries))
    assert isinstance(first, FirstRefused)
    codes = {pb.ServerError.Name(message.code) for message in first.messages}
    return first.index, [message.sequence_id for message in first.messages], codes


def test_the_first_message_over_the_size_is_refused_with_those_right_behind_it() -> None:
    gate = opened(policies(max_message_bytes=100))
    assert gate is not None
    small, large = entry(b"s"), entry(b"l" * 100)
    whole = run(small, small)
    assert gate.admit(producer()[0], whole) is whole
    assert refused(gate, small, large, large, small, large) == (1, [1, 2], {"NotAllowedError"})
    assert refused(gate, large) == (0, [0], {"NotAllowedError"})


def test_a_batch_is_refused_by_its_last_id_and_a_chunk_is_not_judged_by_its_size() -> None:
    gate = opened(policies(max_message_bytes=100))
    assert gate is not None
    batch = run(entry(b"l" * 100))
    batch.highest_varints = [encode_varint(9)]
    first = gate.admit(producer()[0], batch)
    assert isinstance(first, FirstRefused)
    assert [message.sequence_id for message in first.messages] == [9]
    chunk = run(entry(b"l" * 100))
    chunk.is_chunk = True
    assert gate.admit(producer()[0], chunk) is chunk, "its message may be larger than what one entry holds"


def test_what_is_refused_does_not_count_for_the_rate() -> None:
    gate = opened(policies(max_message_bytes=100, publish_rate=Rate(messages=2)))
    who, peer = producer()
    assert gate is not None
    for _ in range(5):
        gate.admit(who, run(entry(), entry(b"l" * 100)))
    assert peer.paused_s == []


def test_where_encryption_is_required_a_message_has_keys() -> None:
    assert opened(policies(encryption_required=True)) is None  # by configuration: only producers are asked
    gate = opened(policies(encryption_required=True, messages_encrypted=True))
    encrypted = entry(encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")])
    assert refused(gate, encrypted, entry(), b"no metadata") == (
        1,
        [1, 2],
        {"MetadataError", "NotAllowedError"},
    )


def test_a_delay_beyond_the_cap_is_refused() -> None:
    gate = opened(policies(delayed_delivery_max_delay_ms=5_000))
    now = SteppedClock().wall_ms()
    at_the_cap, beyond = entry(deliver_at_time=now + 5_000), entry(deliver_at_time=now + 5_001)
    assert refused(gate, entry(), at_the_cap, beyond) == (2, [2], {"NotAllowedError"})
    assert opened(policies(delayed_delivery_max_delay_ms=5_000, delayed_delivery_active=False)) is None


def test_beyond_the_rate_everything_is_taken_and_the_connection_waits() -> None:
    clock = SteppedClock()
    gate = opened(policies(publish_rate=Rate(messages=10)), clock)
    assert gate is not None
    who, peer = producer()
    whole = run(entry(), entry(), counts=[5, 4])
    assert gate.admit(who, whole) is whole
    assert peer.paused_s == []
    assert gate.admit(who, whole) is whole
    assert len(peer.paused_s) == 1
    assert abs(peer.paused_s[0] - 0.9) < 1e-6, "8 messages too many, and one more to go on with"


def test_the_rate_of_the_broker_holds_for_all_topics_together() -> None:
    clock = SteppedClock()
    rates = RateConfig(broker_publish_messages=10)
    limits = PublishLimits(BrokerConfig(policies=PolicyConfig(rates=rates)), clock)
    first, second = limits.gate(policies()), limits.gate(policies())
    assert first is not None
    assert second is not None
    who, peer = producer()
    first.admit(who, run(*[entry()] * 9))
    assert peer.paused_s == []
    second.admit(who, run(*[entry()] * 2))
    assert len(peer.paused_s) == 1


def test_a_rate_of_the_broker_that_changes_holds_with_the_next_gates() -> None:
    clock = SteppedClock()
    rates = RateConfig()
    limits = PublishLimits(BrokerConfig(policies=PolicyConfig(rates=rates)), clock)

    def change(messages: int) -> PublishGate | None:
        object.__setattr__(rates, "broker_publish_messages", messages)  # as the dynamic configuration does
        limits.rates_changed()
        return limits.gate(policies())

    who, peer = producer()
    assert limits.gate(policies()) is None
    gate = change(10)
    assert gate is not None
    gate.admit(who, run(entry(), counts=[30]))
    gate = change(20)
    assert gate is not None
    gate.admit(who, run(entry()))
    assert abs(peer.paused_s[-1] - 22 / 20) < 1e-6, "what was owed is owed"
    assert change(0) is None


def test_a_new_policy_does_not_forgive_what_a_rate_is_owed() -> None:
    clock = SteppedClock()
    limits = PublishLimits(BrokerConfig(), clock)
    gate = limits.gate(policies(publish_rate=Rate(messages=10)))
    assert gate is not None
    who, peer = producer()
    gate.admit(who, run(entry(), counts=[30]))
    gate = limits.gate(policies(publish_rate=Rate(messages=20)), gate)
    assert gate is not None
    gate.admit(who, run(entry()))
    assert abs(peer.paused_s[-1] - 22 / 20) < 1e-6
    clock.now += 1.2
    assert limits.gate(policies(), gate) is None
