"""A table view: the newest value of each key of a topic, kept up to date while it is open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from types import TracebackType
from typing import Any, Generic, TypeVar

from magnetar.client.errors import ClientError
from magnetar.client.messages import Message
from magnetar.client.reader import Reader

T = TypeVar("T")

_log = logging.getLogger(__name__)


class TableView(Generic[T]):
    """Maps keys to values like a dictionary that changes by itself; made by `Client.create_table_view`.

    A message without value removes its key; messages without key are skipped.
    """

    def __init__(self, reader: Reader[T]) -> None:
        self._reader = reader
        self._values: dict[str, T] = {}
        self._listeners: list[Callable[[str, T | None], None]] = []
        self._following: asyncio.Task[None] | None = None
        self._failed: ClientError | None = None
        self._news = asyncio.Event()

    async def open(self) -> None:
        """Reads the topic to its present end, and follows it from then on; for the client. Raises
        ClientError.
        """
        while await self._reader.has_message_available():
            self._take(await self._reader.read())
        self._following = asyncio.ensure_future(self._follow())

    async def refresh(self) -> None:
        """Returns once everything that is stored at the time of the call is in the view. Raises
        ClientError.
        """
        while True:
            self._news.clear()
            if self._failed is not None:
                raise self._failed
            if not await self._reader.has_message_available():
                return
            await self._news.wait()

    def listen(self, listener: Callable[[str, T | None], None]) -> None:
        """Calls `listener(key, value)` for each change from now on; a value of None: the key was removed."""
        self._listeners.append(listener)

    def for_each_and_listen(self, listener: Callable[[str, T | None], None]) -> None:
        """Calls `listener` for each key that there is, then as `listen`."""
        for key, value in list(self._values.items()):
            listener(key, value)
        self.listen(listener)

    def get(self, key: str, default: Any = None) -> T | Any:
        """Returns the value of a key, or `default`."""
        return self._values.get(key, default)

    def keys(self) -> KeysView[str]:
        return self._values.keys()

    def values(self) -> ValuesView[T]:
        return self._values.values()

    def items(self) -> ItemsView[str, T]:
        return self._values.items()

    def __getitem__(self, key: str) -> T:
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    async def close(self) -> None:
        """Ends following the topic; the values stay."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._reader.close()

    async def __aenter__(self) -> TableView[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _follow(self) -> None:
        try:
            async for message in self._reader:
                self._take(message)
        except ClientError as error:
            _log.warning("the table view of %s ended: %s", ", ".join(self._reader.topics), error)
            self._failed = error
            self._news.set()

    def _take(self, message: Message) -> None:
        self._news.set()
        key = message.key
        if key is None:
            return
        try:
            value: T | None = message.value
        except ClientError as error:
            _log.warning("%s, %s: skipped in the table view: %s", message.topic, message.id, error)
            return
        if value is None or (message.is_null or not message.data):
            self._values.pop(key, None)
            value = None
        else:
            self._values[key] = value
        for listener in self._listeners:
            try:
                listener(key, value)
            except Exception:
                _log.exception("a listener of the table view of %s failed", message.topic)
