"""Mutual exclusion of topic deletion and of topic creation without a load."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

from magnetar.common.errors import BeingChanged, BeingDeleted, NamespaceNotEmpty, ServiceNotReady
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName, is_system_topic


class Exclusions:
    """Tracks deletions and creations on one event loop: a check is valid until its caller awaits."""

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        """`known`: full names of the topics that are loaded, or being loaded."""
        self._known = known
        self._deleting: set[str] = set()
        self._deleting_namespaces: set[NamespaceName] = set()
        self._creating: list[TopicName] = []

    @asynccontextmanager
    async def deleting(self, name: TopicName) -> AsyncIterator[None]:
        """Excludes loads of the topic and its partitions. Raises ServiceNotReady when it is already being
        deleted.
        """
        if name.full in self._deleting:
            raise BeingDeleted(f"topic {name} is already being deleted")
        if any(each.base.full == name.full for each in self._creating):
            raise ServiceNotReady(f"topic {name} is being created; retry")
        self._deleting.add(name.full)
        try:
            yield
        finally:
            self._deleting.discard(name.full)

    @contextmanager
    def creating(self, name: TopicName, *, alone: bool = True) -> Iterator[None]:
        """Excludes the deletion of the topic and its namespace while the topic is created without being
        loaded. Raises ServiceNotReady while one of them is being deleted and, if `alone`, BeingChanged during
        a concurrent creation.
        """
        self.check_not_deleted(name)
        if alone and name in self._creating:
            raise BeingChanged(f"topic {name} is already being created")
        self._creating.append(name)
        try:
            yield
        finally:
            self._creating.remove(name)

    @contextmanager
    def deleting_namespace(self, namespace: NamespaceName) -> Iterator[None]:
        """Excludes loads and creations of the namespace's topics. Raises NamespaceNotEmpty while one is
        loaded or being loaded, ServiceNotReady when the namespace is already being deleted.
        """
        if namespace in self._deleting_namespaces:
            raise BeingDeleted(f"namespace {namespace} is already being deleted")
        names = [*map(TopicName.parse, self._known()), *self._creating]
        if any(name.namespace == namespace and not is_system_topic(name) for name in names):
            raise NamespaceNotEmpty("Cannot delete non empty namespace")
        self._deleting_namespaces.add(namespace)
        try:
            yield
        finally:
            self._deleting_namespaces.discard(namespace)

    def check_not_deleted(self, name: TopicName) -> None:
        """Raises ServiceNotReady while the topic, its partitioned topic or its namespace is being deleted."""
        if name.namespace in self._deleting_namespaces:
            raise BeingDeleted(f"namespace {name.namespace} is being deleted")
        if name.full in self._deleting or name.base.full in self._deleting:
            raise BeingDeleted(f"topic {name} is being deleted; look it up again")
