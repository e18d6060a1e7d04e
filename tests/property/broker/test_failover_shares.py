"""Failover on a partitioned topic: its partitions spread evenly over the consumers of the best level."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, given, settings
from magnetar.broker.dispatch.failover import FailoverDispatcher

from tests.examples import examples
from tests.unit.broker.dispatch.test_failover import Fake

TOPIC = "persistent://public/default/orders"


def check_shares(data: st.DataObject) -> None:
    """Consumers connect to each partition in another order, and some of them leave again."""
    levels = data.draw(
        st.dictionaries(st.text("ab1-", min_size=1, max_size=3), st.sampled_from([0, 0, 1]), min_size=1)
    )
    names = sorted(levels)
    leavers = data.draw(st.sets(st.sampled_from(names), max_size=len(names) - 1))
    shares = dict.fromkeys(set(names) - leavers, 0)
    for index in range(data.draw(st.integers(1, 12))):
        dispatcher: FailoverDispatcher[Fake] = FailoverDispatcher(TOPIC, index)
        consumers = [Fake(name, levels[name]) for name in data.draw(st.permutations(names))]
        for consumer in consumers:
            dispatcher.add(consumer)
        for consumer in consumers:
            if consumer.name in leavers:
                dispatcher.remove(consumer)
        assert dispatcher.active is not None
        shares[dispatcher.active.name] += 1
    best = min(levels[name] for name in shares)
    assert not any(share for name, share in shares.items() if levels[name] > best)
    of_best = [share for name, share in shares.items() if levels[name] == best]
    assert max(of_best) - min(of_best) <= 1, Counter(shares)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_partitions_spread_evenly_over_the_best_level(data: st.DataObject) -> None:
    check_shares(data)


@pytest.mark.parametrize("fault", ["order of joining", "all levels"])
def test_another_choice_would_be_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = FailoverDispatcher._choose

    def mutant(self: FailoverDispatcher[Fake]) -> None:
        if fault == "all levels" and self.consumers:
            self.active = self.consumers[self._partition_index % len(self.consumers)]
        elif self.active not in self.consumers:
            choose(self)

    monkeypatch.setattr(FailoverDispatcher, "_choose", mutant)
    noticing = settings(
        max_examples=examples(200), deadline=None, phases=[Phase.generate], report_multiple_bugs=False
    )(given(data=st.data())(check_shares))
    with pytest.raises(AssertionError):
        noticing()
