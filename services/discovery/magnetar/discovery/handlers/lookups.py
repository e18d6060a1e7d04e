"""Handlers for topic lookups, partition metadata, and requests that brokers answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from magnetar.common.cluster.broker_directory import addresses_of
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import commands
from magnetar.common.wire.frame import encode_command
from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandLookupTopic
from magnetar.discovery.handlers.services import Services

ANSWER_TIMEOUT_S: Final = 20.0
"""Timeout of a broker's response, in seconds, before the client must retry; clients wait for 30 s."""


def lookup(services: Services, command: BaseCommand) -> bytes | Coroutine[Any, Any, bytes]:
    """Answer a lookup with the owner broker. An unowned bundle is assigned first.

    Every response is authoritative: it names the current owner, so that no further lookup is needed.
    """
    request = command.lookupTopic
    topic = TopicName.parse(request.topic)
    owner = services.owner(topic)
    if owner is None:
        return _find(services, request, topic)
    return _connect(services, request, owner)


async def _find(services: Services, request: CommandLookupTopic, topic: TopicName) -> bytes:
    listener = request.advertised_listener_name
    try:
        with services.question():
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                owner = await services.finder.find(topic, listener)
    except TimeoutError as error:
        raise ServiceNotReady(
            f"no broker took {topic} within {ANSWER_TIMEOUT_S:g} s; look up again"
        ) from error
    return _connect(services, request, owner)


def _connect(services: Services, request: CommandLookupTopic, owner: BrokerRegistration) -> bytes:
    addresses = addresses_of(owner, request.advertised_listener_name)
    through = services.config.proxy.through_service_url
    broker_url_tls = addresses.broker_url_tls
    if through and not broker_url_tls:
        # Not used for connections. A client that uses TLS to a load balancer names the broker only by this
        # URL.
        broker_url_tls = addresses.broker_url.replace("pulsar://", "pulsar+ssl://", 1)
    return commands.lookup_connect(
        request.request_id,
        addresses.broker_url,
        broker_url_tls=broker_url_tls or None,
        proxy_through_service_url=through,
    )


async def partitions(services: Services, command: BaseCommand) -> bytes:
    """Return the number of partitions. For a missing topic, call a broker, which may create it."""
    request = command.partitionMetadata
    topic = TopicName.parse(request.topic)
    with services.question():
        count = await services.partitions.of(topic)
        if count is None:
            return await _asked(services, command)
    return commands.partition_metadata(request.request_id, count)


async def passed_on(services: Services, command: BaseCommand) -> bytes:
    """Forward a request to any broker: lists of topics (some are known only to brokers) and schemas."""
    with services.question():
        return await _asked(services, command)


async def _asked(services: Services, command: BaseCommand) -> bytes:
    return encode_command(await services.brokers.ask(command))
