"""Policies in requests: values, backlog quota types, and edits of stored policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.policies.broker_limits import check_within_broker
from magnetar.broker.admin.policies.policy_fields import PolicyField
from magnetar.broker.admin.policies.policy_kinds import QUOTA_FIELDS
from magnetar.broker.config import BrokerConfig
from magnetar.common.metadata.values import Policies

APPLY_SECONDS_MAX: Final = 2.0
"""Longest wait for loaded topics to apply a change before the request is answered."""

QUOTA_QUERY: Final = ("backlogQuotaType:BacklogQuotaType=destination_storage",)


def setting(field: PolicyField, value: Any, name: str, config: BrokerConfig) -> Callable[[Policies], None]:
    """Returns an edit that sets a field within the broker's limits; errors call the field `name`."""

    def edit(policies: Policies) -> None:
        field.write(policies, value, name)
        check_within_broker(field.api.proto, policies, config)

    return edit


async def value_of(field: PolicyField, call: Call, *, may_be_null: bool) -> Any:
    """Returns the body, or the field's value for an empty body, if it has one."""
    if field.without_body is not None:
        return await call.json_or(field.without_body)
    return await (call.json_or(None) if may_be_null else call.json())


def quota_type_of(call: Call) -> str:
    """Returns the backlog quota type in the query. Raises Refused (404), as for a path that does not
    exist.
    """
    quota_type = call.request.query.get("backlogQuotaType", "destination_storage")
    if quota_type not in QUOTA_FIELDS:
        raise Refused(404, f"backlogQuotaType is one of {', '.join(QUOTA_FIELDS)}, not {quota_type!r}")
    return quota_type
