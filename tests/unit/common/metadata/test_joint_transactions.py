"""Transactions that are joined behave as if each were by itself, whatever they touch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from magnetar.common.errors import VersionMismatch
from magnetar.common.metadata.etcd_writes import EtcdWrites
from magnetar.common.metadata.id_counter import IdCounter
from magnetar.common.metadata.store import ANY_VERSION, Check, Delete, Op, Put
from magnetar.sim.loop import SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

KEYS = ("a", "b", "c", "d", "e", "f")


def some_ops(rng: random.Random, versions: dict[str, int], mark: bytes) -> list[Op]:
    """Operations on two or three keys; most guards hold if nothing else comes first."""
    ops: list[Op] = []
    for key in rng.sample(KEYS, rng.randint(2, 3)):
        expected = versions[key] if rng.random() < 0.9 else versions[key] + 1000
        kind = rng.random()
        if kind < 0.4:
            ops.append(Check(key, expected))
        elif kind < 0.9:
            ops.append(Put(key, mark, expected if rng.random() < 0.8 else ANY_VERSION))
        else:
            ops.append(Delete(key, expected))
    return ops


class History:
    """Transactions that were committed, replayed by revision."""

    def __init__(self, store: SimMetadataStore) -> None:
        self.store = store
        self.done: list[tuple[int, Sequence[Op]]] = []

    async def check(self, versions: dict[str, int]) -> None:
        """Every guard held just before its transaction, and the store has what the last ones wrote."""
        for revision in sorted({revision for revision, _ in self.done}):
            together = [ops for at, ops in self.done if at == revision]
            for ops in together:
                written = {op.key for op in ops if not isinstance(op, Check)}
                others = {op.key for other in together if other is not ops for op in other}
                assert not written & others, "one would see, or miss, what the other writes"
            for op in (op for ops in together for op in ops):
                assert op.expected_version in (ANY_VERSION, versions[op.key]), (revision, op)
            for op in (op for ops in together for op in ops):
                if isinstance(op, Put):
                    versions[op.key] = revision
                elif isinstance(op, Delete):
                    versions[op.key] = 0
        for key in KEYS:
            found = await self.store.get(key)
            assert versions[key] == (0 if found is None else found.version)


@pytest.mark.parametrize("seed", range(20))
def test_joined_transactions_are_as_good_as_separate_ones(seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        server = SimMetadataServer()
        store = SimMetadataStore(server, rng)
        commits = 0

        async def commit(ops: Sequence[Op]) -> int:
            nonlocal commits
            commits += 1
            await asyncio.sleep(rng.random())
            return await store.commit(ops)

        writes = EtcdWrites(commit)
        ids = IdCounter(store, "counter")
        history = History(store)
        given: list[int] = []
        failed = 0
        for _ in range(20):
            found = {key: await store.get(key) for key in KEYS}
            versions = {key: 0 if each is None else each.version for key, each in found.items()}
            history.done.clear()

            async def one(number: int, versions: dict[str, int] = versions) -> None:
                nonlocal failed
                ops = some_ops(rng, versions, b"%d" % number)
                try:
                    if number % 3:
                        revision = await writes.commit(ops)
                    else:
                        first, revision = await ids.commit(lambda first_id: ops)
                        given.append(first)
                except VersionMismatch as error:
                    failed += error.key in {op.key for op in ops}
                else:
                    if any(not isinstance(op, Check) for op in ops) or not number % 3:
                        history.done.append((revision, ops))

            await asyncio.gather(*map(one, range(30)))
            await history.check(dict(versions))
        assert sorted(given) == list(range(1, len(given) + 1)), "no id is lost or given twice"
        assert failed > 100
        assert 0 < commits < 20 * 20 * 2

    run(SimLoop(seed), main())
