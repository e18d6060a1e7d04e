"""The same kind of traffic by the PyPI client, in a thread for each topic; all its topics have partitions.

What the library has prefetched the checker does not see, so it is not asked about permits.
"""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
from collections.abc import Callable

import pulsar

from tests.integration.harness import Endpoint
from tests.soak.history import ORDERED, Consumer, Kind, Position, Subscription, Violation

SUBSCRIPTION = "soak"
PARTITIONS = 3
RECEIVE_MS = 50
TICK_SECONDS_MAX = 0.02
UNLIMITED = 1 << 60
NEVER = float("-inf")
TYPES = {
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Failover": pulsar.ConsumerType.Failover,
    "Shared": pulsar.ConsumerType.Shared,
    "Key_Shared": pulsar.ConsumerType.KeyShared,
}


class Member:
    """One consumer of the library, seen as one of each partition."""

    def __init__(self, consumer: pulsar.Consumer, name: str) -> None:
        self.consumer = consumer
        self.held: list[pulsar.Message] = []
        self.seen = [Consumer(name, permits=UNLIMITED, rewinds=UNLIMITED) for _ in range(PARTITIONS)]


class LibraryTopic(threading.Thread):
    """Runs until `finish`; then drains. `violations` says what was wrong."""

    def __init__(self, endpoint: Endpoint, topic: str, kind: Kind, seed: int) -> None:
        super().__init__(daemon=True, name=f"soak {topic}")
        self.violations: list[str] = []
        self.histories = [Subscription(f"{topic}-{n}", SUBSCRIPTION, kind) for n in range(PARTITIONS)]
        self.delivered = 0
        self._confirmed: list[tuple[int, Position, str]] = []
        self._lock = threading.Lock()
        self._topic = topic
        self._kind: Kind = kind
        self._rng = random.Random(seed)
        self._ending = threading.Event()
        self._members: list[Member] = []
        self._named = 0
        self._unanswered = 0
        self._client = pulsar.Client(
            endpoint.service_url,
            operation_timeout_seconds=30,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )

    def finish(self, drain_seconds_max: float) -> None:
        """Ends the traffic, awaits the drain; bounded."""
        self._drain_seconds_max = drain_seconds_max
        self._ending.set()
        self.join(drain_seconds_max + 60.0)
        if self.is_alive():
            frame = sys._current_frames().get(self.ident or 0)
            where = "".join(traceback.format_stack(frame)[-4:])
            lost = [len(history.missing()) for history in self.histories]
            what = f"by partition {lost} of the confirmed messages did not come"
            self.violations.append(
                f"{self._topic}: {self._kind}: the library hangs: {what}; it is at\n{where}"
            )
            return
        for history in self.histories:
            if missing := history.missing():
                self.violations.append(f"{history}: lost {len(missing)}, the first at {missing[0]}")

    def run(self) -> None:
        try:
            self._join()
            producer = self._client.create_producer(
                self._topic, batching_enabled=False, block_if_queue_full=True
            )
            while not self._ending.wait(self._rng.uniform(0, TICK_SECONDS_MAX)):
                self._tick(producer)
            producer.flush()
            self._drain()
            self._client.close()
        except Exception as error:
            self.violations.append(f"{self._topic}: {self._kind}: {type(error).__name__}: {error}")

    def _tick(self, producer: pulsar.Producer) -> None:
        rng, action = self._rng, self._rng.random()
        if action < 0.3:
            for _ in range(rng.randrange(1, 10)):
                key = f"key-{rng.randrange(12)}"
                producer.send_async(b"soak", self._on_sent(key), partition_key=key)
        elif action < 0.33 and len(self._members) < 3 and not (self._kind == "Exclusive" and self._members):
            self._join()
        elif action < 0.35 and self._members:
            self._leave(rng.choice(self._members))
        elif self._members:
            member = rng.choice(self._members)
            for _ in range(rng.randrange(1, 30)):
                if not self._consume(member, trouble=True):
                    break
        else:
            self._join()

    def _on_sent(self, key: str) -> Callable[[pulsar.Result, pulsar.MessageId], None]:
        def sent(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
            with self._lock:
                if result == pulsar.Result.Ok:
                    position = (message_id.ledger_id(), message_id.entry_id())
                    self._confirmed.append((message_id.partition(), position, key))
                else:
                    self.violations.append(f"{self._topic}: a send failed: {result}")

        return sent

    def _note_confirmed(self) -> None:
        with self._lock:
            confirmed, self._confirmed = self._confirmed, []
        for partition, position, key in confirmed:
            self._guard(self.histories[partition].confirmed, position, key)

    def _join(self) -> None:
        self._named += 1
        name = f"library {self._named}"
        consumer = self._client.subscribe(
            self._topic,
            SUBSCRIPTION,
            consumer_type=TYPES[self._kind],
            consumer_name=name,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=self._rng.choice((1, 10, 100)),
            negative_ack_redelivery_delay_ms=100,
        )
        member = Member(consumer, name)
        self._members.append(member)
        if self._kind != "Failover":  # who is active there the library does not say
            for history, seen in zip(self.histories, member.seen, strict=True):
                self._guard(history.joined, seen)

    def _leave(self, member: Member) -> None:
        self._members.remove(member)
        for history, seen in zip(self.histories, member.seen, strict=True):
            if self._kind != "Failover":
                history.left(seen)
        member.consumer.close()

    def _consume(self, member: Member, *, trouble: bool) -> bool:
        """Takes what is there and answers some of it; says whether anything came."""
        try:
            message = member.consumer.receive(RECEIVE_MS)
        except pulsar.Timeout:
            return False
        self.delivered += 1
        self._note_confirmed()
        message_id = message.message_id()
        position = (message_id.ledger_id(), message_id.entry_id())
        history, seen = self.histories[message_id.partition()], member.seen[message_id.partition()]
        self._guard(history.delivery, seen, position, message.partition_key(), NEVER)
        if trouble and self._kind not in ORDERED and self._rng.random() < 0.1:
            history.given_back(seen, [position])
            member.consumer.negative_acknowledge(message)
        else:
            history.acknowledging([position])
            seen.pending.pop(position, None)
            member.consumer.acknowledge(message)
        return True

    def _drain(self) -> None:
        """Until every confirmed message was delivered, or nothing new comes for long."""
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < self._drain_seconds_max:
            self._note_confirmed()
            if not any(history.missing() for history in self.histories):
                return
            if not self._members:
                self._join()
            for member in self._members:
                while self._consume(member, trouble=False):
                    quiet_since = time.monotonic()

    def _guard(self, call: Callable[..., None], *args: object) -> None:
        try:
            call(*args)
        except Violation as violation:
            self.violations.append(str(violation))
