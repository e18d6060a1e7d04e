"""Liveness probe of connected consumers, before a new consumer is refused because of them.

The old connection of a client that reconnects after a network cut counts as alive for up to a minute, and
would keep the client out for that long. Probed are the consumer of an Exclusive subscription, consumers that
share keys in another mode, and those that hold some of the hash ranges that the new consumer names (messaging
contract, Connection).
"""

from __future__ import annotations

import asyncio

from magnetar.broker.topics.subscribe.any_subscription import AnySubscription
from magnetar.broker.topics.subscribe.subscribe_request import SubscribeRequest
from magnetar.common.errors import ConsumerAssignFailed, ConsumerBusy


async def holders_are_gone(
    subscription: AnySubscription | None,
    request: SubscribeRequest,
    refusal: ConsumerBusy | ConsumerAssignFailed,
) -> bool:
    """Returns whether to try again after `refusal`: all consumers that caused it are dead.

    All are probed at once, so that many dead ones take no longer than one.
    """
    if isinstance(refusal, ConsumerAssignFailed):
        key_shared = None if subscription is None else subscription.key_shared
        holders = [] if key_shared is None else key_shared.holders(request.options.hash_ranges)
        if not holders:
            return False  # the ranges are invalid, whether or not other consumers are connected
    elif subscription is None:
        return True
    elif subscription.type == request.type:
        holders = list(subscription.consumers)
    else:
        return False
    return not any(await asyncio.gather(*[holder.peer.is_alive() for holder in holders]))
