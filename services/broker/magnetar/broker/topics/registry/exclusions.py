"""Topics being deleted, or created without being loaded: never both at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

from magnetar.common.errors import BeingChanged, BeingDeleted, NamespaceNotEmpty, ServiceNotReady
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName, is_system_topic


class Exclusions:
    """On one event loop: a check holds until its caller awaits."""

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        """`known`: full names of the topics that are loaded, or being loaded."""
        self._known = known
        self._deleting: set[str] = set()
        self._deleting_namespaces: set[NamespaceName] = set()
        self._creating: list[TopicName] = []

    @asynccontextmanager
    async def deleting(self, name: TopicName) -> AsyncIterator[None]:
        """Neither the topic nor a partition of it is loaded meanwhile. Raises ServiceNotReady, when it is
        being deleted already.
        """
        if name.full in self._deleting:
            raise BeingDeleted(f"topic {name} is being deleted already")
        if any(each.base.full == name.full for each in self._creating):
            raise ServiceNotReady(f"topic {name} is being made; try again")
        self._deleting.add(name.full)
        try:
            yield
        finally:
            self._deleting.discard(name.full)

    @contextmanager
    def creating(self, name: TopicName, *, alone: bool = True) -> Iterator[None]:
        """The topic is made meanwhile, without being loaded: neither it nor its namespace is deleted. Raises
        ServiceNotReady while one of them is, and, if `alone`, BeingChanged during a concurrent creation.
        """
        self.check_not_deleted(name)
        if alone and name in self._creating:
            raise BeingChanged(f"topic {name} is being made already")
        self._creating.append(name)
        try:
            yield
        finally:
            self._creating.remove(name)

    @contextmanager
    def deleting_namespace(self, namespace: NamespaceName) -> Iterator[None]:
        """No topic of the namespace is loaded or made meanwhile. Raises NamespaceNotEmpty while one is loaded
        or being loaded, ServiceNotReady when the namespace is being deleted already.
        """
        if namespace in self._deleting_namespaces:
            raise BeingDeleted(f"namespace {namespace} is being deleted already")
        names = [*map(TopicName.parse, self._known()), *self._creating]
        if any(name.namespace == namespace and not is_system_topic(name) for name in names):
            raise NamespaceNotEmpty("Cannot delete non empty namespace")
        self._deleting_namespaces.add(namespace)
        try:
            yield
        finally:
            self._deleting_namespaces.discard(namespace)

    def check_not_deleted(self, name: TopicName) -> None:
        """Raises ServiceNotReady while the topic, the one that it is part of, or its namespace is being
        deleted.
        """
        if name.namespace in self._deleting_namespaces:
            raise BeingDeleted(f"namespace {name.namespace} is being deleted")
        if name.full in self._deleting or name.base.full in self._deleting:
            raise BeingDeleted(f"topic {name} is being deleted; look it up again")
