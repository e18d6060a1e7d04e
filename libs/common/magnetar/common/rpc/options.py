"""Options of gRPC channels and servers, and the text form of a gRPC status."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import grpc

ChannelOptions: TypeAlias = list[tuple[str, Any]]

SERVER_KEEPALIVE_MS: Final = 30_000
"""Time in ms after which a client that answers no ping is considered gone."""

PING_INTERVAL_MIN_MS: Final = 5_000
"""Minimum interval in ms between pings from a client."""


def message_options(message_bytes_max: int) -> ChannelOptions:
    """Returns message size limits for a channel or server, with settings that speed up streams of large
    messages.
    """
    return [
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", message_bytes_max),
        ("grpc.http2.max_frame_size", 1 << 20),
        ("grpc.http2.lookahead_bytes", 1 << 20),
    ]


def server_options(message_bytes_max: int) -> ChannelOptions:
    """Returns options for a server that does not share its port and detects dead clients."""
    return [
        *message_options(message_bytes_max),
        ("grpc.so_reuseport", 0),  # otherwise two processes could listen on one port
        ("grpc.keepalive_time_ms", SERVER_KEEPALIVE_MS),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_INTERVAL_MIN_MS),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def channel_options(
    message_bytes_max: int, connect_timeout_s: float, reconnect_max_s: float
) -> ChannelOptions:
    """Returns options for a channel with its own connection, fast detection of dead peers, fast reconnects
    and no retries.
    """
    return [
        *message_options(message_bytes_max),
        # Channels with equal options would share a connection: small calls would wait behind large ones.
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
