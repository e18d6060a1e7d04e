"""The single place for permission checks.

Every handler and HTTP route calls `authorize` before it acts. There is no authentication yet, so every
principal may do everything; a configuration that enables authorization stops the start.
"""

from __future__ import annotations

from magnetar.common.security.principal import Principal


def authorize(principal: Principal | None, action: str, resource: str) -> None:
    """Return when `principal` may do `action` ('produce', 'consume', 'lookup', 'admin') on `resource`.

    Raises Unauthorized otherwise, which this version never does.
    """
