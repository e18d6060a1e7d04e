"""The one place where permissions will be checked.

Every handler and every HTTP route asks here before it acts. No authentication is offered yet, so every
principal may do everything; a configuration that switches authorization on stops the start instead.
"""

from __future__ import annotations

from magnetar.common.security.principal import Principal


def authorize(principal: Principal | None, action: str, resource: str) -> None:
    """Return when `principal` may do `action` ('produce', 'consume', 'lookup', 'admin') on `resource`.

    Raises Unauthorized otherwise, which this version never does.
    """
