"""Actions as bits."""

from __future__ import annotations

from magnetar.common.security.authorization.actions import BY_NAME, CONSUME, PRODUCE, actions_mask


def test_every_action_has_a_bit_of_its_own() -> None:
    assert sum(BY_NAME.values()) == actions_mask(BY_NAME)
    assert len(set(BY_NAME.values())) == len(BY_NAME) == 6


def test_an_action_of_a_later_version_grants_nothing() -> None:
    assert actions_mask(["produce", "dance", "consume"]) == PRODUCE | CONSUME
    assert actions_mask([]) == 0
