"""TLS and credentials of commands towards etcd, from the environment: the settings that services have."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from magnetar.common.config.loader import ENVIRONMENT_PREFIX, load
from magnetar.common.errors import ConfigError
from magnetar.common.security.services.config import MetadataAccessConfig

if TYPE_CHECKING:  # it imports gRPC
    from magnetar.common.metadata.etcd_access import EtcdAccess

_SETTINGS: Final = f"{ENVIRONMENT_PREFIX}magnetarMetadata".lower().replace("_", "")
_REFRESH_S: Final = 60.0


def metadata_access(url: str) -> EtcdAccess | None:
    """How the store at `url` is reached, by magnetarMetadata... of the environment; None without either.

    Raises ConfigError for settings that contradict each other or the URL.
    """
    told = {
        name: value
        for name, value in os.environ.items()
        if name.lower().replace("_", "").startswith(_SETTINGS)
    }
    config = load(MetadataAccessConfig, environ=told).value
    if problems := config.problems(url):
        raise ConfigError("; ".join(problems))
    return config.access(url, _REFRESH_S)
