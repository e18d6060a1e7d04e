"""Settings that change while brokers run: kept in metadata, taken over by every broker through a watch.

The configuration is frozen for all modules but this one, which changes the broker's own copy of it in place:
whoever holds a part of it reads it at the moment of use, or is told by what `changed` leads to. A setting is
in DYNAMIC only if that is so; those names are among the ones that Pulsar can change, too.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from magnetar.broker.config import BrokerConfig
from magnetar.broker.stored_values import change_value, read_value
from magnetar.common.config.setting_values import read_value as read_setting
from magnetar.common.config.setting_values import settings_of, show_value
from magnetar.common.errors import DataCorruption, MetadataError, UnsupportedFormat, WatchLost
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import DynamicConfiguration
from magnetar.common.obs.logs import get_logger
from magnetar.common.security.authorization.config import SUPER_USERS_KEY

log = get_logger(__name__)

T = TypeVar("T")

RETRY_S: Final = 1.0
"""After a watch that could not be had, before the next one."""

DYNAMIC: Final = frozenset(
    {
        "allowAutoSubscriptionCreation",
        "allowAutoTopicCreation",
        "allowAutoTopicCreationType",
        "brokerDeleteInactiveTopicsEnabled",
        "brokerDeleteInactiveTopicsFrequencySeconds",
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds",
        "brokerDeleteInactiveTopicsMode",
        "brokerPublisherThrottlingMaxByteRate",
        "brokerPublisherThrottlingMaxMessageRate",
        "defaultNumPartitions",
        "dispatchThrottlingOnNonBacklogConsumerEnabled",
        "dispatchThrottlingRateInByte",
        "dispatchThrottlingRateInMsg",
        "dispatchThrottlingRatePerSubscriptionInByte",
        "dispatchThrottlingRatePerSubscriptionInMsg",
        "dispatchThrottlingRatePerTopicInByte",
        "dispatchThrottlingRatePerTopicInMsg",
        "dispatchThrottlingRateRelativeToPublishRate",
        "dispatcherMaxReadBatchSize",
        "forceDeleteNamespaceAllowed",
        "forceDeleteTenantAllowed",
        "keySharedLookAheadMsgInReplayThresholdPerConsumer",
        "keySharedLookAheadMsgInReplayThresholdPerSubscription",
        "maxConcurrentLookupRequest",
        "maxConcurrentTopicLoadRequest",
        "maxMessagePublishBufferSizeInMB",
        "maxNumPartitionsPerPartitionedTopic",
        "maxPublishRatePerTopicInBytes",
        "maxPublishRatePerTopicInMessages",
        "maxTopicsPerNamespace",
        "subscribeRatePeriodPerConsumerInSecond",
        "subscribeThrottlingRatePerConsumer",
        "subscriptionKeySharedEnable",
        "subscriptionTypesEnabled",
        SUPER_USERS_KEY,
    }
)


class NotDynamic(Exception):
    """No setting of that name can be changed while the broker runs."""


class BadValue(Exception):
    """The setting cannot have that value; the text says what would be right."""


class DynamicConfig:
    """A broker's configuration as it is now: what it was started with, and over it what was changed since."""

    def __init__(self, started_with: BrokerConfig, metadata: MetadataStore, keys: Keys) -> None:
        self.current = copy.deepcopy(started_with)
        self._metadata = metadata
        self._key = keys.dynamic_configuration
        self._places = dict(_places(self.current))
        self._started_with = {key: getattr(*place) for key, place in self._places.items()}
        self._settings = dict(settings_of(BrokerConfig))
        self._dynamic = set(DYNAMIC)
        self._changed: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def names(self) -> list[str]:
        """The settings that can be changed."""
        return sorted(self._dynamic)

    def follow_also(self, started_with: T, dynamic: Collection[str]) -> T:
        """Have another part of the configuration follow, too, before `start`: its settings of these keys.

        Returns the copy that changes, to be read at the moment of use.
        """
        assert self._task is None, "the configuration is followed already"
        section = copy.deepcopy(started_with)
        places = dict(_places(section))
        self._places.update(places)
        self._started_with.update({key: getattr(*place) for key, place in places.items()})
        self._settings.update(settings_of(type(started_with)))
        self._dynamic.update(dynamic)
        return section

    async def start(self, changed: Callable[[], None]) -> None:
        """Take over what is said in metadata, and follow it until `close`. Raises MetadataError.

        `changed` is called, from the event loop, after settings have changed; not for what this finds.
        """
        assert self._task is None, "the configuration is followed already"
        self._apply(await self.values())
        self._changed = changed
        self._task = asyncio.create_task(self._follow(), name="dynamic configuration")

    async def close(self) -> None:
        """Follow no more; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def values(self) -> dict[str, str]:
        """Dynamic values in the store, by configuration key."""
        found = await read_value(self._metadata, self._key, DynamicConfiguration)
        return {} if found is None else dict(found.values)

    def running(self) -> dict[str, str]:
        """Every setting of this broker as it is now, as in a configuration file."""
        return {key: show_value(getattr(*place)) for key, place in self._places.items()}

    async def set(self, key: str, text: str) -> None:
        """Change a setting for every broker; this one has it on return.

        Raises NotDynamic, BadValue, VersionMismatch when others are always faster, MetadataError.
        """
        value = show_value(self._read(key, text))
        await self._change(lambda stored: stored.values.update({key: value}))
        log.info("setting changed while running", key=key, value=value)

    async def remove(self, key: str) -> None:
        """Every broker has what it was started with again. Raises NotDynamic, MetadataError."""
        if key not in self._dynamic:
            raise NotDynamic(key)
        await self._change(lambda stored: stored.values.pop(key, None))
        log.info("setting is again what the broker was started with", key=key)

    async def _change(self, edit: Callable[[DynamicConfiguration], object]) -> None:
        def edited(stored: DynamicConfiguration) -> None:
            edit(stored)

        await change_value(self._metadata, self._key, DynamicConfiguration, edited)
        self._apply(await self.values())

    def _read(self, key: str, text: str) -> Any:
        if key not in self._dynamic:
            raise NotDynamic(key)
        if not text.strip():
            raise BadValue(f"{key} needs a value")
        try:
            return read_setting(self._settings[key], text)
        except ValueError as error:
            raise BadValue(f"{key} = {text!r} {error}") from error

    def _apply(self, values: Mapping[str, str]) -> None:
        changed = []
        for key in self._dynamic:
            wanted = self._started_with[key]
            if key in values:
                try:
                    wanted = self._read(key, values[key])
                except BadValue as error:
                    log.warning("a changed setting is not understood here and ignored", reason=str(error))
            section, name = self._places[key]
            if getattr(section, name) != wanted:
                object.__setattr__(section, name, wanted)
                changed.append(key)
        if changed and self._changed is not None:
            log.info("settings taken over", keys=sorted(changed))
            self._changed()

    async def _follow(self) -> None:
        """Until it is closed; a watch that is lost, or not to be had, is made again."""
        while True:
            changes = self._metadata.watch(self._key)
            try:
                self._apply(await self.values())
                async for _ in changes:
                    self._apply(await self.values())
                return
            except WatchLost:
                pass
            except (MetadataError, DataCorruption, UnsupportedFormat) as error:
                log.warning("the dynamic configuration is not followed now", error=str(error))
                await asyncio.sleep(RETRY_S)
            finally:
                await changes.aclose()


def _places(section: Any) -> list[tuple[str, tuple[Any, str]]]:
    """(configuration key, (the part of the configuration that has it, its name there)) of every setting."""
    found = []
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            found += _places(value)
        else:
            found.append((field.metadata["setting"].key, (section, field.name)))
    return found
