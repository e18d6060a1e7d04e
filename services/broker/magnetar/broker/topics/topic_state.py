"""State shared by the parts of one topic: its name, its policies, and whether it serves clients."""

from __future__ import annotations

from magnetar.broker.policies.effective_policies import EffectivePolicies
from magnetar.common.errors import ServiceNotReady, TopicTerminated
from magnetar.common.naming.topic_name import TopicName


class TopicState:
    """Owned by the topic, which alone changes it; its parts read it."""

    __slots__ = ("closing", "name", "policies", "terminated")

    def __init__(self, name: TopicName, policies: EffectivePolicies) -> None:
        self.name = name
        self.policies = policies
        """The policies in force; shared with the namespace's other topics that have none of their own."""
        self.closing = False
        """True once the topic is being closed, moved or lost; it never serves again."""
        self.terminated = False
        """True once the topic is terminated: it permanently accepts no more messages but still serves
        consumers.
        """

    def check_open(self) -> None:
        """Raises ServiceNotReady when the topic is being closed."""
        if self.closing:
            raise ServiceNotReady(f"topic {self.name} is being closed; look it up again")

    def check_accepts_producers(self) -> None:
        """Raises ServiceNotReady when the topic is being closed, TopicTerminated when it was terminated."""
        self.check_open()
        if self.terminated:
            raise TopicTerminated(f"topic {self.name} is terminated: it accepts no more producers")
