"""Dynamic settings: stored in metadata and applied by every broker through a watch.

The configuration is frozen for all other modules. This module changes the broker's copy in place, so every
user of a dynamic setting must read it at the moment of use or react to the `changed` callback. DYNAMIC lists
only settings for which this holds; all of them are dynamic in Pulsar, too.
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
from magnetar.common.config.setting_values import settings_of, show_setting, show_value
from magnetar.common.errors import DataCorruption, MetadataError, UnsupportedFormat, WatchLost
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import DynamicConfiguration
from magnetar.common.obs.logs import get_logger
from magnetar.common.security.authorization.config import SUPER_USERS_KEY

log = get_logger(__name__)

T = TypeVar("T")

RETRY_S: Final = 1.0
"""Seconds between two attempts to start a watch."""

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
        "isAllowAutoUpdateSchemaEnabled",
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
    """The setting does not exist, or cannot be changed while the broker runs."""


class BadValue(Exception):
    """The value is invalid for the setting; the text describes valid values."""


class DynamicConfig:
    """A broker's current configuration: the values from its start, overridden by the dynamic ones."""

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
        """Names of the settings that can be changed."""
        return sorted(self._dynamic)

    def follow_also(self, started_with: T, dynamic: Collection[str]) -> T:
        """Registers another configuration section, before `start`, whose settings named in `dynamic` change,
        too.

        Returns the copy that changes; callers read it at the moment of use.
        """
        assert self._task is None, "the dynamic configuration has already started"
        section = copy.deepcopy(started_with)
        places = dict(_places(section))
        self._places.update(places)
        self._started_with.update({key: getattr(*place) for key, place in places.items()})
        self._settings.update(settings_of(type(started_with)))
        self._dynamic.update(dynamic)
        return section

    async def start(self, changed: Callable[[], None]) -> None:
        """Applies the stored values and watches them until `close`. Raises MetadataError.

        `changed` is called on the event loop after later changes, not for the values found by this call.
        """
        assert self._task is None, "the dynamic configuration has already started"
        self._apply(await self.values())
        self._changed = changed
        self._task = asyncio.create_task(self._follow(), name="dynamic configuration")

    async def close(self) -> None:
        """Stops the watch; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def values(self) -> dict[str, str]:
        """Returns the dynamic values in the store, by configuration key."""
        found = await read_value(self._metadata, self._key, DynamicConfiguration)
        return {} if found is None else dict(found.values)

    def running(self) -> dict[str, str]:
        """Every setting of this broker as it is now, as in a configuration file; secrets are hidden."""
        return {
            key: show_setting(self._settings[key].info, getattr(*place))
            for key, place in self._places.items()
        }

    async def set(self, key: str, text: str) -> None:
        """Changes a setting on every broker; on return this broker has applied it.

        Raises NotDynamic; BadValue; VersionMismatch when conflicts exhaust the retries; MetadataError.
        """
        value = show_value(self._read(key, text))
        await self._change(lambda stored: stored.values.update({key: value}))
        log.info("dynamic setting changed", key=key, value=value)

    async def remove(self, key: str) -> None:
        """Resets a setting on every broker to its value from the start. Raises NotDynamic, MetadataError."""
        if key not in self._dynamic:
            raise NotDynamic(key)
        await self._change(lambda stored: stored.values.pop(key, None))
        log.info("dynamic setting removed", key=key)

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
                    log.warning("invalid dynamic setting ignored", reason=str(error))
            section, name = self._places[key]
            if getattr(section, name) != wanted:
                object.__setattr__(section, name, wanted)
                changed.append(key)
        if changed and self._changed is not None:
            log.info("dynamic settings applied", keys=sorted(changed))
            self._changed()

    async def _follow(self) -> None:
        """Watches the settings until closed; a watch that fails or cannot be started is restarted."""
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
                log.warning("dynamic configuration is not watched now", error=str(error))
                await asyncio.sleep(RETRY_S)
            finally:
                await changes.aclose()


def _places(section: Any) -> list[tuple[str, tuple[Any, str]]]:
    """Yields (configuration key, (section that declares it, its attribute there)) of every setting."""
    found = []
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            found += _places(value)
        else:
            found.append((field.metadata["setting"].key, (section, field.name)))
    return found
