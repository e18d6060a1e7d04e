"""The liveness probe before a newcomer to a subscription is refused because of who is there.

A client that reconnects after its network was cut would be refused for a minute otherwise: until the broker
notices that its old connection is dead. An Exclusive consumer is asked, the consumers that share keys in
another way, and those that have some of the hash ranges which the newcomer names (messaging contract,
Connection).
"""

from __future__ import annotations

import asyncio

from magnetar.broker.topics.topic import AnySubscription, SubscribeRequest
from magnetar.common.errors import ConsumerAssignFailed, ConsumerBusy


async def holders_are_gone(
    subscription: AnySubscription | None,
    request: SubscribeRequest,
    refusal: ConsumerBusy | ConsumerAssignFailed,
) -> bool:
    """Whether it is worth trying again after `refusal`: nobody because of whom it came is alive.

    All are asked at once, so that many dead ones take no longer than one.
    """
    if isinstance(refusal, ConsumerAssignFailed):
        key_shared = None if subscription is None else subscription.key_shared
        holders = [] if key_shared is None else key_shared.holders(request.options.hash_ranges)
        if not holders:
            return False  # nobody could have these ranges
    elif subscription is None:
        return True
    elif subscription.type == request.type:
        holders = list(subscription.consumers)
    else:
        return False
    return not any(await asyncio.gather(*[holder.peer.is_alive() for holder in holders]))
