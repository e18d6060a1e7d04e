"""Clients of the simulation: workers that consume, transform and publish in transactions, and readers.

Every call is recorded. A worker gives up on a transaction as soon as one of its calls fails, and ends it;
some transactions are aborted on purpose, or left to their timeout.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tests.transactions.history import OTHER_OUTCOME, Answer, Recorder, Txn
from tests.transactions.sim_broker import Owners, coordinator_party
from tests.transactions.sim_calls import Caller, CallFailed

TTL_S: Final = 1.0
SHORT_TTL_S: Final = 0.2
AROUND_THE_DEADLINE_S: Final = (0.15, 0.25)
"""A commit that races with the timeout of a short transaction."""
END_TIMEOUT_S: Final = 1.0
END_ATTEMPTS_MAX: Final = 4
PAUSE_S: Final = 0.02
HELD_MAX: Final = 3
IMPATIENT_S: Final = 0.03
"""Longest time after which an impatient worker ends a transaction, whatever is under way in it."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A subscription to consume, and the topics that get what was made of it."""

    source: str
    subscription: str
    targets: tuple[str, ...]
    cumulative: bool = False


@dataclass(slots=True)
class Client:
    """Calls of one worker, each recorded."""

    name: str
    caller: Caller
    owners: Owners
    recorder: Recorder
    rng: random.Random

    async def recorded(self, kind: str, party: str, method: str, timeout_s: float = 0.4, **both: Any) -> Any:
        """Makes a call with `send` as its fields and `note` in the history; returns its value. Raises
        CallFailed.
        """
        send, note = both["send"], both["note"]
        call = self.recorder.begin(kind, self.name, **note)
        try:
            value = await self.caller.call(self.owners.address(party), method, timeout_s, **send)
        except CallFailed as error:
            name = OTHER_OUTCOME if error.name == OTHER_OUTCOME else error.name
            self.recorder.answer(call, Answer.REFUSED if error.certain else Answer.UNKNOWN, error=name)
            raise
        self.recorder.answer(call, Answer.OK, **_result(kind, value))
        return value

    async def begin(self, coordinator: int, ttl_s: float) -> Txn:
        fields = {"coordinator": coordinator, "ttl_ms": int(ttl_s * 1000)}
        party = coordinator_party(coordinator)
        most, least = await self.recorded("new", party, "New", send=fields, note={"ttl_s": ttl_s})
        return most, least

    async def add_partitions(self, txn: Txn, topics: list[str]) -> None:
        to = self.owners.address(coordinator_party(txn[0]))
        await self.caller.call(to, "AddPartition", txn=txn, topics=topics)

    async def add_subscription(self, txn: Txn, topic: str, subscription: str) -> None:
        to = self.owners.address(coordinator_party(txn[0]))
        await self.caller.call(to, "AddSubscription", txn=txn, topic=topic, subscription=subscription)

    async def send(
        self, topic: str, name: str, txn: Txn | None, inputs: list[str] | None = None, slot: int = 0
    ) -> None:
        note = {"topic": topic, "message": name, "txn": txn, "inputs": inputs or [], "slot": slot}
        await self.recorded(
            "send", topic, "Send", send={"topic": topic, "names": [name], "txn": txn}, note=note
        )

    async def end(self, txn: Txn, commit: bool) -> bool:
        """Ends a transaction, again while the outcome is unknown; returns whether it is known."""
        for _ in range(END_ATTEMPTS_MAX):
            fields = {"txn": txn, "commit": commit}
            try:
                party = coordinator_party(txn[0])
                await self.recorded("end", party, "End", END_TIMEOUT_S, send=fields, note=fields)
                return True
            except CallFailed as error:
                if error.certain:
                    return False
            await asyncio.sleep(self.rng.uniform(0, PAUSE_S))
        return False


def _result(kind: str, value: Any) -> dict[str, Any]:
    if kind == "new":
        return {"txn": value}
    return {"position": value[0]} if kind == "send" else {}


@dataclass(slots=True)
class Worker:
    """Consumes from one stage until told to stop."""

    client: Client
    stage: Stage
    coordinators: int
    over: Callable[[], bool]
    transactions_max: int
    made: int = 0
    _registered: list[str] = field(default_factory=list)
    """Topics of the transaction under way."""

    async def run(self) -> None:
        rng = self.client.rng
        while not self.over() and self.transactions_max > 0:
            try:
                held = await self._receive()
                if held and rng.random() < 0.3:
                    await self.client.send(rng.choice(self.stage.targets), self._name(), None)
                if held:
                    self.transactions_max -= 1
                    await self._transact(held)
            except CallFailed:
                pass
            await asyncio.sleep(rng.uniform(0, PAUSE_S))

    async def _receive(self) -> list[dict[str, Any]]:
        """Returns entries, each {position, size, indexes, names}."""
        stage, client = self.stage, self.client
        fields: dict[str, Any] = {"topic": stage.source, "subscription": stage.subscription}
        fields |= {"consumer": client.name}
        fields |= {"most": client.rng.randint(1, HELD_MAX), "ordered": stage.cumulative}
        found = await client.caller.call(client.owners.address(stage.source), "Receive", **fields)
        held = []
        for entry in found:
            path = "redelivery" if entry["again"] else "dispatch"
            for name, position in entry["messages"]:
                client.recorder.note(
                    "delivery",
                    reader=client.name,
                    topic=stage.source,
                    message=name,
                    position=position,
                    path=path,
                )
            held.append(self._chosen(entry))
        return held

    def _chosen(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Takes all messages of an entry, or some of a batch."""
        messages, rng = entry["messages"], self.client.rng
        if len(messages) > 1 and not self.stage.cumulative and rng.random() < 0.7:
            messages = rng.sample(messages, rng.randint(1, len(messages)))
        names = [name for name, _ in messages]
        indexes = [max(0, position[2]) for _, position in messages]
        return {"position": messages[0][1][:2], "size": entry["size"], "indexes": indexes, "names": names}

    async def _transact(self, held: list[dict[str, Any]]) -> None:
        client, stage, rng = self.client, self.stage, self.client.rng
        fate = rng.random()
        forgotten, late = fate < 0.1, 0.1 < fate < 0.25
        ttl_s = SHORT_TTL_S if forgotten or late else TTL_S
        txn = await client.begin(rng.randrange(self.coordinators), ttl_s)
        filling = asyncio.create_task(self._filled(txn, held))
        impatient = rng.random() < 0.15
        await asyncio.wait([filling], timeout=rng.uniform(0, IMPATIENT_S) if impatient else None)
        done = filling.done() and filling.result()
        if forgotten and done:
            return
        if late:
            await asyncio.sleep(rng.uniform(*AROUND_THE_DEADLINE_S))
        commit = done and (late or fate > 0.4)
        # A second caller, such as an operator, may want the same or the other outcome.
        other = asyncio.create_task(self._meddle(txn, may_commit=done))
        known = await client.end(txn, commit)
        await other
        if not known and stage.cumulative:
            # A cumulative acknowledgement does not say which messages it means: beginning anew before the
            # outcome is known could consume them twice.
            self.transactions_max = 0
        if rng.random() < 0.2:
            await self._haunt(txn)
        if not commit and stage.cumulative:
            fields: dict[str, Any] = {"topic": stage.source, "subscription": stage.subscription}
            fields["consumer"] = client.name
            await client.caller.call(client.owners.address(stage.source), "GiveBack", **fields)

    async def _meddle(self, txn: Txn, *, may_commit: bool) -> None:
        rng = self.client.rng
        if rng.random() < 0.1:
            await self.client.end(txn, may_commit and rng.random() < 0.5)

    async def _filled(self, txn: Txn, held: list[dict[str, Any]]) -> bool:
        try:
            await self._fill(txn, held)
        except CallFailed:
            return False
        return True

    async def _haunt(self, txn: Txn) -> None:
        """Publishes in a transaction that was ended: to a topic that takes part, or to one more."""
        client, targets = self.client, list(self._registered)
        try:
            other = client.rng.choice([self.stage.source, *self.stage.targets])
            await client.add_partitions(txn, [other])
            targets.append(other)
        except CallFailed:
            pass
        if targets:
            with suppress(CallFailed):
                await client.send(client.rng.choice(targets), self._name(), txn)

    async def _fill(self, txn: Txn, held: list[dict[str, Any]]) -> None:
        """Registers, publishes and acknowledges; the order of publishing and acknowledging is any."""
        client, stage, rng = self.client, self.stage, self.client.rng
        inputs = sorted(name for entry in held for name in entry["names"])
        targets = [rng.choice(stage.targets) for _ in range(rng.randint(1, 2))] if stage.targets else []
        self._registered = []
        if targets:
            await client.add_partitions(txn, sorted(set(targets)))
            self._registered = sorted(set(targets))
        await client.add_subscription(txn, stage.source, stage.subscription)
        calls = [client.send(target, self._name(), txn, inputs, slot) for slot, target in enumerate(targets)]
        calls.insert(rng.randint(0, len(calls)), self._acknowledge(txn, held, inputs))
        if rng.random() < 0.5:
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            failed = [each for each in outcomes if isinstance(each, BaseException)]
            if failed:
                raise failed[0]
        else:
            try:
                while calls:
                    await calls.pop(0)
            finally:
                for call in calls:
                    call.close()

    async def _acknowledge(self, txn: Txn, held: list[dict[str, Any]], names: list[str]) -> None:
        stage = self.stage
        entries = [{key: entry[key] for key in ("position", "size", "indexes")} for entry in held]
        fields = {"topic": stage.source, "subscription": stage.subscription, "txn": txn}
        await self.client.recorded(
            "ack",
            stage.source,
            "Ack",
            send={**fields, "entries": entries, "cumulative": stage.cumulative},
            note={**fields, "messages": names},
        )

    def _name(self) -> str:
        self.made += 1
        return f"{self.client.name}-{self.made}"


@dataclass(slots=True)
class Reader:
    """Follows one topic from its first message, in order."""

    client: Client
    topic: str
    over: Callable[[], bool]
    after: list[int] | None = None

    async def run(self) -> None:
        client = self.client
        while not self.over():
            began = client.recorder.now()
            try:
                found = await client.caller.call(
                    client.owners.address(self.topic), "Read", topic=self.topic, after=self.after
                )
            except CallFailed:
                await asyncio.sleep(client.rng.uniform(0, 4 * PAUSE_S))
                continue
            limits = {"limit": found["limit"], "last": found["last"]}
            client.recorder.note("limit", topic=self.topic, began=began, **limits)
            for entry in found["entries"]:
                for name, position in entry:
                    client.recorder.note(
                        "delivery",
                        reader=client.name,
                        topic=self.topic,
                        message=name,
                        position=position,
                        path="reader",
                    )
                    self.after = position[:2]
            await asyncio.sleep(client.rng.uniform(0, 4 * PAUSE_S))
