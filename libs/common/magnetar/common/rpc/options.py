"""Options of gRPC channels and servers, and how a failed call is told."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import grpc

ChannelOptions: TypeAlias = list[tuple[str, Any]]

SERVER_KEEPALIVE_MS: Final = 30_000
"""A client that answers no ping for so long is gone."""

PING_INTERVAL_MIN_MS: Final = 5_000
"""How often clients may ask whether the server is there."""


def message_options(message_bytes_max: int) -> ChannelOptions:
    """Limits for a channel or a server, and what makes streams of large messages quick."""
    return [
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", message_bytes_max),
        ("grpc.http2.max_frame_size", 1 << 20),
        ("grpc.http2.lookahead_bytes", 1 << 20),
    ]


def server_options(message_bytes_max: int) -> ChannelOptions:
    """For a server that shares its port with nobody and notices clients that are gone."""
    return [
        *message_options(message_bytes_max),
        ("grpc.so_reuseport", 0),  # two processes on one port would share its clients
        ("grpc.keepalive_time_ms", SERVER_KEEPALIVE_MS),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_INTERVAL_MIN_MS),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def channel_options(
    message_bytes_max: int, connect_timeout_s: float, reconnect_max_s: float
) -> ChannelOptions:
    """For a channel with a connection of its own: dead peers noticed, quick to connect again, no retries."""
    return [
        *message_options(message_bytes_max),
        # Channels of equal options share a connection otherwise: small calls would wait behind large ones.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.min_reconnect_backoff_ms", int(connect_timeout_s * 1000)),
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", int(reconnect_max_s * 1000)),
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.enable_http_proxy", 0),
    ]


def status_line(code: grpc.StatusCode, details: str | None) -> str:
    """A gRPC status as text."""
    return f"{code.name}: {details}" if details else code.name
