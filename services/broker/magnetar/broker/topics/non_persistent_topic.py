"""Non-persistent topics: nothing is stored, and a receipt only confirms that the broker received the
message.
"""

from __future__ import annotations

from magnetar.broker.client_endings import EndCode
from magnetar.broker.message_drops import NonPersistentTopicStats
from magnetar.broker.policies.effective_policies import EffectivePolicies
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.topics.publish.in_process_limit import InProcess
from magnetar.broker.topics.publish.non_persistent_publishing import NonPersistentPublishing
from magnetar.broker.topics.publish.producers import Producers
from magnetar.broker.topics.publish.publish_gate import PublishLimits
from magnetar.broker.topics.publish.refusals import Refusals
from magnetar.broker.topics.subscribe.non_persistent_subscriptions import NonPersistentSubscriptions
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import OwnershipLost
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.clock import Clock


class UnstoredEpoch:
    """Topic epoch of a topic without storage; it starts at 0 with each load."""

    __slots__ = ("topic_epoch",)

    def __init__(self) -> None:
        self.topic_epoch = 0

    async def raise_topic_epoch(self, at_least: int) -> int:
        """Raises the epoch to the next one, or to `at_least` if that is higher."""
        self.topic_epoch = max(self.topic_epoch + 1, at_least)
        return self.topic_epoch


class NonPersistentTopic(Topic):
    """One non-persistent topic."""

    __slots__ = ()

    stats: NonPersistentTopicStats
    publishing: NonPersistentPublishing
    subscriptions: NonPersistentSubscriptions

    def __init__(
        self,
        name: TopicName,
        policies: EffectivePolicies,
        config: DispatchConfig,
        clock: Clock,
        in_process: InProcess,
        *,
        publish_limits: PublishLimits | None = None,
    ) -> None:
        """Builds a topic; `publish_limits` is None for a topic without publish limits."""
        super().__init__(name, policies)
        self.stats = stats = NonPersistentTopicStats()
        self.producers = Producers(
            self.state,
            UnstoredEpoch(),
            refused=None if publish_limits is None else publish_limits.refused,
            on_removed=stats.forget_producer,
        )
        self.refusals = Refusals(self.state, self.producers, publish_limits)
        self.subscriptions = NonPersistentSubscriptions(self.state, config, stats, clock)
        self.publishing = NonPersistentPublishing(
            self.state, self.subscriptions.values(), self.refusals, publish_limits, stats, in_process
        )

    def apply_policies(self, policies: EffectivePolicies) -> None:
        self.state.policies = policies
        self.producers.apply_policies()
        self.publishing.apply_policies()

    @property
    def storage_bytes(self) -> int:
        return 0

    @property
    def storage_entries(self) -> int:
        return 0

    @property
    def copies(self) -> int:
        return 0

    def prove_ownership(self) -> None:
        # A topic without a ledger has no proof of ownership.
        self.abandon(OwnershipLost(f"{self.name}: metadata has not confirmed ownership for too long"))

    async def close(self) -> None:
        self.disconnect_clients(EndCode.UNLOADED)
