"""Services of handlers for tests that use next to nothing of them."""

from __future__ import annotations

from typing import Any, cast

from magnetar.broker.config import BrokerConfig
from magnetar.broker.handlers.client import Services
from magnetar.common.metadata.keys import Keys
from magnetar.common.security.authorization.authorizer import Authorizer
from magnetar.common.security.authorization.config import AuthorizationConfig


def bare_services(clock: Any, *, spawn: Any = None, budget: Any = None) -> Services:
    """With these parts and the default configuration; whoever reaches for another part fails."""
    nothing = cast(Any, None)
    return Services(
        config=BrokerConfig(),
        topics=nothing,
        partitioned=nothing,
        topic_lists=nothing,
        schemas=nothing,
        producer_names=nothing,
        clock=clock,
        ownership=nothing,
        spawn=spawn,
        budget=budget,
        authorizer=Authorizer(AuthorizationConfig(), nothing, Keys("standalone")),
        transactions=nothing,
    )
