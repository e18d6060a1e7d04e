from __future__ import annotations

from magnetar.broker.transport.publish_budget import PublishBudget


def test_a_waiting_connection_goes_on_at_half_the_budget_and_only_once() -> None:
    budget = PublishBudget(100)
    resumed: list[str] = []
    budget.add(120)
    assert budget.spent
    budget.wait(1, lambda: resumed.append("one"))
    budget.wait(1, lambda: resumed.append("one"))
    budget.add(-60)
    assert not budget.spent
    assert resumed == []
    budget.add(-10)
    assert resumed == ["one"]
    budget.add(-10)
    assert resumed == ["one"]


def test_a_connection_that_is_gone_is_not_resumed() -> None:
    budget = PublishBudget(100)
    budget.add(100)
    budget.wait(1, lambda: (_ for _ in ()).throw(AssertionError("gone")))
    budget.forget(1)
    budget.add(-100)
    assert budget.pending_bytes == 0
