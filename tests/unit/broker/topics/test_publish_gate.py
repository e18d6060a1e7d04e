from __future__ import annotations

from dataclasses import replace

from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.config import PolicyConfig, RateConfig
from magnetar.broker.policies.effective import EffectivePolicies, Rate, resolve
from magnetar.broker.topics.producer import Producer
from magnetar.broker.topics.publish_gate import PublishGate, PublishLimits
from magnetar.common.metadata.values import Policies
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.varint import encode_varint
from structlog.testing import capture_logs

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
    return PublishLimits(BrokerConfig(), clock or SteppedClock()).gate("t", gate_policies)


def producer() -> tuple[Producer, FakePeer]:
    peer = FakePeer()
    return Producer(1, "p", 0, peer, {}, b"", 0), peer


def test_without_limits_there_is_no_gate() -> None:
    assert opened(policies()) is None
    assert opened(policies(max_message_bytes=BrokerConfig().publish.message_bytes_max)) is None


def test_messages_over_the_size_are_refused_one_by_one() -> None:
    gate = opened(policies(max_message_bytes=100))
    assert gate is not None
    small, large = entry(b"s"), entry(b"l" * 100)
    who, peer = producer()
    assert gate.admit(who, run(small)) is not None
    assert peer.answers == []
    admitted = gate.admit(who, run(small, large, small, counts=[1, 2, 3]))
    assert admitted is not None
    assert admitted.entries == [small, small]
    assert admitted.message_counts == [1, 3]
    assert admitted.sequence_ids() == [0, 2]
    assert admitted.byte_length == 2 * len(small)
    assert peer.answers == [(1, "refused")]
    assert gate.admit(who, run(large)) is None


def test_of_refused_messages_there_is_one_line_in_the_log() -> None:
    gate = opened(policies(max_message_bytes=100))
    assert gate is not None
    who, _ = producer()
    with capture_logs() as lines:
        for _ in range(50):
            gate.admit(who, run(entry(), entry(b"l" * 100), entry(b"l" * 100)))
    assert [(line["event"], line["topic"], line["producer"], line["entries"]) for line in lines] == [
        ("publish refused", "t", "p", 2)
    ]
    assert "over this topic's 100" in lines[0]["error"]


def test_where_encryption_is_required_a_message_has_keys() -> None:
    gate = opened(policies(encryption_required=True))
    assert gate is not None
    plain = entry()
    encrypted = entry(encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")])
    who, peer = producer()
    admitted = gate.admit(who, run(encrypted, plain, b"no metadata"))
    assert admitted is not None
    assert admitted.entries == [encrypted]
    assert peer.answers == [(1, "refused"), (2, "refused")]


def test_a_delay_beyond_the_cap_is_refused() -> None:
    gate = opened(policies(delayed_delivery_max_delay_ms=5_000))
    assert gate is not None
    now = SteppedClock().wall_ms()
    who, peer = producer()
    admitted = gate.admit(
        who, run(entry(), entry(deliver_at_time=now + 5_000), entry(deliver_at_time=now + 5_001))
    )
    assert admitted is not None
    assert len(admitted.entries) == 2
    assert peer.answers == [(2, "refused")]
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
    first, second = limits.gate("t", policies()), limits.gate("t", policies())
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
        return limits.gate("t", policies())

    who, peer = producer()
    assert limits.gate("t", policies()) is None
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
    gate = limits.gate("t", policies(publish_rate=Rate(messages=10)))
    assert gate is not None
    who, peer = producer()
    gate.admit(who, run(entry(), counts=[30]))
    gate = limits.gate("t", policies(publish_rate=Rate(messages=20)), gate)
    assert gate is not None
    gate.admit(who, run(entry()))
    assert abs(peer.paused_s[-1] - 22 / 20) < 1e-6
    clock.now += 1.2
    assert limits.gate("t", policies(), gate) is None
