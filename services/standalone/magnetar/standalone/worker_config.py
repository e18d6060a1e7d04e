"""Configuration of one of several brokers on a machine: the same settings with shifted ports."""

from __future__ import annotations

from dataclasses import replace

from magnetar.standalone.cluster_config import ClusterBrokerConfig


def worker_config(config: ClusterBrokerConfig, worker: int) -> ClusterBrokerConfig:
    """Return the configuration of worker number `worker`, from 0: every given port plus that number."""
    listener = config.broker.listener
    return replace(
        config,
        broker=replace(
            config.broker,
            listener=replace(
                listener,
                broker_service_port=_client_port_later(listener.broker_service_port, worker),
                broker_service_port_tls=_client_port_later(listener.broker_service_port_tls, worker),
                web_service_port=_client_port_later(listener.web_service_port, worker),
                web_service_port_tls=_client_port_later(listener.web_service_port_tls, worker),
                advertised_listeners=_listeners_later(listener.advertised_listeners, worker),
            ),
        ),
        control=replace(config.control, port=_later(config.control.port, worker)),
    )


def _client_port_later(port: int | None, worker: int) -> int | None:
    return None if port is None else _later(port, worker)


def _later(port: int, worker: int) -> int:
    return port + worker if port else 0


def _listeners_later(text: str, worker: int) -> str:
    """Return advertisedListeners with every port raised; invalid listeners are kept for later validation."""
    return ",".join(_listener_later(each.strip(), worker) for each in text.split(","))


def _listener_later(text: str, worker: int) -> str:
    before, _, port = text.rpartition(":")
    return f"{before}:{int(port) + worker}" if port.isascii() and port.isdigit() else text
