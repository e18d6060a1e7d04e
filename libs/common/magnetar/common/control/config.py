"""Settings of a broker's control plane."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig:
    """The port for calls from other brokers, discovery and offload jobs."""

    port: int = setting(
        6750,
        "Port of gRPC, where other brokers, discovery, offload jobs and Spark call this one, at bindAddress; "
        "0 picks a free one. Not for clients: keep it within the cluster's network.",
        key="magnetarControlPort",
        minimum=0,
        maximum=65_535,
    )
