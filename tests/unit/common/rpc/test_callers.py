"""Checks of callers over real mutual TLS: the certificate decides, not the address or the common name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from magnetar.common.control import methods as control
from magnetar.common.offload import methods as offload
from magnetar.common.rpc.callers import CallerCheck
from magnetar.common.rpc.options import server_options
from magnetar.common.rpc.server import GrpcServer
from magnetar.common.security.services.service_identity import Service, ServiceIdentity
from magnetar.ledger.bookie_protocol import grpc_methods as bookie

from tests.certificates import Authority, Pair

CLUSTER = "one-cluster"
SERVICE = "test.Service"


async def echo(data: bytes, _context: Any) -> bytes:
    return data


async def refuse(context: Any, _method: str, error: Exception) -> None:
    await context.abort(getattr(error, "status", grpc.StatusCode.INTERNAL), str(error))


def outcome(authority: Authority, caller: Pair, method: str = "Write") -> str:
    """The answer of a server whose Write is for brokers only: its text, or the refusal."""

    async def call() -> str:
        server_pair = authority.issue("server")
        credentials = grpc.ssl_server_credentials(
            [(server_pair.key.read_bytes(), server_pair.certificate.read_bytes())],
            root_certificates=authority.certificate.read_bytes(),
            require_client_auth=True,
        )
        check = CallerCheck(CLUSTER, {"Write": frozenset({Service.BROKER})})
        handlers: dict[str, Any] = {
            each: grpc.unary_unary_rpc_method_handler(echo) for each in ("Write", "Unlisted")
        }
        server = GrpcServer(
            SERVICE, handlers, refuse, server_options(1 << 20), credentials, guard=check.guard
        )
        port = await server.start("127.0.0.1", 0, "port")
        channel = grpc.aio.secure_channel(
            f"localhost:{port}",
            grpc.ssl_channel_credentials(
                authority.certificate.read_bytes(), caller.key.read_bytes(), caller.certificate.read_bytes()
            ),
        )
        try:
            stub: Any = channel.unary_unary(f"/{SERVICE}/{method}")
            return str((await stub(b"hello", timeout=30)).decode())
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        finally:
            await channel.close()
            await server.stop(0)

    return asyncio.run(call())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    directory: Path = tmp_path_factory.mktemp("certificates")
    return Authority(directory)


def test_a_service_of_this_cluster_calls_a_method_that_permits_it(authority: Authority) -> None:
    caller = authority.issue("magnetar-broker", ServiceIdentity(CLUSTER, Service.BROKER, "b1").uri)
    assert outcome(authority, caller) == "hello"


def test_another_service_is_told_which_services_may_call(authority: Authority) -> None:
    caller = authority.issue("magnetar-job", ServiceIdentity(CLUSTER, Service.JOB).uri)
    answer = outcome(authority, caller)
    assert answer.startswith("PERMISSION_DENIED: a job may not call Write; permitted: broker")


def test_a_service_of_another_cluster_is_refused(authority: Authority) -> None:
    caller = authority.issue("other", ServiceIdentity("another-cluster", Service.BROKER).uri)
    assert outcome(authority, caller).startswith("PERMISSION_DENIED: the caller's certificate has no URI")


def test_a_certificate_without_an_identity_is_refused_whatever_its_common_name(authority: Authority) -> None:
    caller = authority.issue("spiffe-broker")
    assert outcome(authority, caller).startswith("PERMISSION_DENIED: the caller's certificate has no URI")


def test_a_method_without_a_line_in_the_table_is_refused(authority: Authority) -> None:
    caller = authority.issue("magnetar-broker-2", ServiceIdentity(CLUSTER, Service.BROKER).uri)
    assert outcome(authority, caller, "Unlisted").startswith("PERMISSION_DENIED: a broker may not call")


def test_every_method_of_every_service_has_a_line() -> None:
    def names(module: Any) -> set[str]:
        return {each.name for each in vars(module).values() if isinstance(each, module.Method)}

    assert set(control.CALLERS) == names(control)
    assert set(offload.CALLERS) == names(offload)
    assert set(bookie.CALLERS) == names(bookie) | {bookie.APPEND}


def test_only_brokers_and_bookies_write_to_a_bookie() -> None:
    for method in (bookie.APPEND, bookie.FENCE.name, bookie.DELETE_HINT.name, bookie.CLEAR_LIMBO.name):
        assert bookie.CALLERS[method] == {Service.BROKER, Service.BOOKIE}
