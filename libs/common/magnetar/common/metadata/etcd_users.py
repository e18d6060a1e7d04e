"""Users of etcd with least rights, and access control turned on.

A user is the common name of a client certificate and has no password
(`magnetar.common.metadata.etcd_access`). Each has one role of its own name. etcd itself requires the user and
the role `root` before it turns access control on
(https://etcd.io/docs/v3.5/op-guide/authentication/rbac/).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from etcd3aio import _protobuf as etcd
from magnetar.common.metadata.etcd_connection import EtcdConnection
from magnetar.common.metadata.etcd_watch import prefix_range
from magnetar.common.metadata.keys import Keys

ROOT: Final = "root"
"""The user, and the role, that may do everything."""


class Right(NamedTuple):
    """A range of keys, and whether it may be written as well as read."""

    start: str
    is_prefix: bool
    writes: bool


def cluster_prefix(keys: Keys) -> str:
    """Return the prefix of a cluster's keys in every layout: rights stay valid in the next one."""
    return keys.root.removesuffix("v1/")


def rights_of_users(keys: Keys) -> dict[str, tuple[Right, ...]]:
    """Return what each user needs of one cluster's metadata (docs/metadata-keys.md says who writes what).

    Bookies write their identities, registrations and what re-replication keeps (`bookies/`), ledgers that get
    other bookies (`ledgers/`), and the instance id, where they are the first to start.
    """
    everything = cluster_prefix(keys)
    read, write = Right(everything, True, False), Right(everything, True, True)
    of_bookies = (
        Right(f"{keys.root}bookies/", True, True),
        Right(keys.instance_id, False, True),
        Right(keys.ledgers_prefix, True, True),
    )
    return {
        "magnetar-admin": (write,),
        "magnetar-backup": (read,),
        "magnetar-bookie": (read, *of_bookies),
        "magnetar-broker": (write,),
        "magnetar-discovery": (read,),
    }


async def require_users(
    connection: EtcdConnection,
    keys: Keys,
    rights: Mapping[str, Sequence[Right]],
    administrators: Sequence[str],
) -> list[str]:
    """Make the users and roles that are missing, grant and revoke rights, and turn access control on.

    `administrators` get the role root. Rights of these roles on other clusters' keys stay: several clusters
    may share one etcd. Idempotent; returns what was changed, for people. Raises MetadataError, and
    UnknownOutcome when etcd did not answer a change: call it again.
    """
    access = _AccessControl(connection)
    await access.read()
    for role in (ROOT, *rights):
        await access.require_role(role)
    for role, wanted in rights.items():
        await access.require_rights(role, cluster_prefix(keys), wanted)
    for user in dict.fromkeys((ROOT, *administrators)):
        await access.require_user(user, ROOT)
    for user in rights:
        await access.require_user(user, user)
    await access.enable()
    return access.changes


class _AccessControl:
    """Users and roles as etcd has them, and changes to them."""

    def __init__(self, connection: EtcdConnection) -> None:
        self.changes: list[str] = []
        self._connection = connection
        self._roles: frozenset[str] = frozenset()
        self._users: frozenset[str] = frozenset()

    async def read(self) -> None:
        """Read the names of users and roles. Raises MetadataError."""
        roles = await self._ask("list roles", lambda auth: auth.RoleList, etcd.AuthRoleListRequest())
        users = await self._ask("list users", lambda auth: auth.UserList, etcd.AuthUserListRequest())
        self._roles, self._users = frozenset(roles.roles), frozenset(users.users)

    async def require_role(self, role: str) -> None:
        if role not in self._roles:
            await self._change(
                f"role {role} added", lambda auth: auth.RoleAdd, etcd.AuthRoleAddRequest(name=role)
            )

    async def require_rights(self, role: str, within: str, wanted: Sequence[Right]) -> None:
        """Grant `wanted`; revoke other rights on keys that begin with `within`."""
        answer = await self._ask(
            f"read role {role}", lambda auth: auth.RoleGet, etcd.AuthRoleGetRequest(role=role)
        )
        there = {(each.key, each.range_end): each.permType for each in answer.perm}
        needed = {_range(right): _kind(right) for right in wanted}
        for (key, range_end), kind in needed.items():
            if there.get((key, range_end)) != kind:
                permission = etcd.Permission(permType=kind, key=key, range_end=range_end)
                await self._change(
                    f"role {role} may {_WORDS[kind]} {key.decode()}{'*' if range_end else ''}",
                    lambda auth: auth.RoleGrantPermission,
                    etcd.AuthRoleGrantPermissionRequest(name=role, perm=permission),
                )
        for key, range_end in there.keys() - needed.keys():
            if key.startswith(within.encode()):
                await self._change(
                    f"role {role} has no right on {key.decode(errors='replace')} any more",
                    lambda auth: auth.RoleRevokePermission,
                    etcd.AuthRoleRevokePermissionRequest(role=role, key=key, range_end=range_end),
                )

    async def require_user(self, user: str, role: str) -> None:
        """Make the user where it is missing, without a password, and give it the role."""
        roles: Sequence[str] = ()
        if user in self._users:
            answer = await self._ask(
                f"read user {user}", lambda auth: auth.UserGet, etcd.AuthUserGetRequest(name=user)
            )
            roles = answer.roles
        else:
            options = etcd.UserAddOptions(no_password=True)
            await self._change(
                f"user {user} added",
                lambda auth: auth.UserAdd,
                etcd.AuthUserAddRequest(name=user, options=options),
            )
        if role not in roles:
            await self._change(
                f"user {user} has role {role}",
                lambda auth: auth.UserGrantRole,
                etcd.AuthUserGrantRoleRequest(user=user, role=role),
            )

    async def enable(self) -> None:
        """Turn access control on; etcd takes it as done where it is on."""
        await self._connection.write(
            "turn access control on", lambda endpoint: endpoint.auth.AuthEnable, etcd.AuthEnableRequest()
        )

    async def _ask(self, operation: str, method: Callable[[Any], Any], request: Any) -> Any:
        return await self._connection.read(operation, lambda endpoint: method(endpoint.auth), request)

    async def _change(self, done: str, method: Callable[[Any], Any], request: Any) -> None:
        await self._connection.write(done, lambda endpoint: method(endpoint.auth), request)
        self.changes.append(done)


_WORDS: Final = {etcd.Permission.READ: "read", etcd.Permission.READWRITE: "read and write"}


def _kind(right: Right) -> int:
    return int(etcd.Permission.READWRITE if right.writes else etcd.Permission.READ)


def _range(right: Right) -> tuple[bytes, bytes]:
    return prefix_range(right.start) if right.is_prefix else (right.start.encode(), b"")
