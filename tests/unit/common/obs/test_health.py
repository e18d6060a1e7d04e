"""What the health pages answer."""

from __future__ import annotations

from magnetar.common.obs import health


def test_responding_process_is_live() -> None:
    assert health.live() == (200, "ok\n")


def test_ready_is_who_has_no_reason_not_to_be() -> None:
    assert health.ready(None) == (200, "ok\n")
    assert health.ready("it drains") == (503, "not ready: it drains\n")
