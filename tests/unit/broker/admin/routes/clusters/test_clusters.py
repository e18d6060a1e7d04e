"""Clusters over HTTP, as Pulsar's recorded answers have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

C2 = {"serviceUrl": "http://c2:8080", "brokerServiceUrl": "pulsar://c2:6650"}


def test_the_life_of_a_cluster(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.reason(404, "GET", "/clusters/c2") == "Cluster does not exist"
        assert await http.reason(404, "POST", "/clusters/c2", C2) == "Cluster does not exist"
        assert await http.send("PUT", "/clusters/c2", {**C2, "unknown": [1]}) == (200, "")
        assert await http.ask("/clusters") == ["c2", "standalone"]
        assert await http.ask("/clusters/c2") == {
            **C2,
            "brokerClientTlsEnabled": False,
            "tlsAllowInsecureConnection": False,
            "brokerClientTlsEnabledWithKeyStore": False,
        }
        assert await http.reason(409, "PUT", "/clusters/c2", C2) == "Cluster already exists"
        assert await http.send("POST", "/clusters/c2", {"serviceUrl": "http://c2b:8080"}) == (200, "")
        changed = await http.ask("/clusters/c2")
        assert changed["serviceUrl"] == "http://c2b:8080"
        assert "brokerServiceUrl" not in changed, "what is written is all there is"
        assert await http.send("DELETE", "/clusters/c2") == (204, "")
        assert await http.reason(404, "GET", "/clusters/c2") == "Cluster does not exist"
        assert await http.reason(404, "DELETE", "/clusters/c2") == "Cluster does not exist"

    serving(body)


def test_every_field_of_a_cluster_comes_back(serving: Serving) -> None:
    everything = {
        "serviceUrl": "http://a:1,b:2",
        "serviceUrlTls": "https://a:1",
        "brokerServiceUrl": "pulsar://a:1",
        "brokerServiceUrlTls": "pulsar+ssl://a:1",
        "proxyServiceUrl": "pulsar+ssl://p:1",
        "authenticationPlugin": "token",
        "authenticationParameters": "token:x",
        "proxyProtocol": "SNI",
        "peerClusterNames": ["standalone"],
        "brokerClientTlsEnabled": True,
        "tlsAllowInsecureConnection": True,
        "brokerClientTlsEnabledWithKeyStore": True,
        "brokerClientTlsTrustStoreType": "JKS",
        "brokerClientTlsTrustStore": "/ts",
        "brokerClientTlsTrustStorePassword": "p1",
        "brokerClientTlsKeyStoreType": "JKS",
        "brokerClientTlsKeyStore": "/ks",
        "brokerClientTlsKeyStorePassword": "p2",
        "brokerClientTrustCertsFilePath": "/ca",
        "brokerClientKeyFilePath": "/key",
        "brokerClientCertificateFilePath": "/cert",
        "brokerClientSslFactoryPlugin": "f",
        "brokerClientSslFactoryPluginParams": "fp",
        "listenerName": "external",
    }

    async def body(http: Http) -> None:
        assert await http.send("PUT", "/clusters/all", everything) == (200, "")
        assert await http.ask("/clusters/all") == everything

    serving(body)


def test_own_cluster_exists_by_default_and_stays(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.ask("/clusters/standalone") == {
            "serviceUrl": "http://localhost:8080",
            "brokerServiceUrl": "pulsar://localhost:6650",
            "brokerClientTlsEnabled": False,
            "tlsAllowInsecureConnection": False,
            "brokerClientTlsEnabledWithKeyStore": False,
            "brokerClientTlsTrustStoreType": "JKS",
            "brokerClientTlsKeyStoreType": "JKS",
            "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
        }
        assert await http.reason(409, "PUT", "/clusters/standalone", C2) == "Cluster already exists"
        assert "of this broker" in await http.reason(412, "DELETE", "/clusters/standalone")
        assert await http.send("POST", "/clusters/standalone", C2) == (200, "")
        assert (await http.ask("/clusters/standalone"))["serviceUrl"] == C2["serviceUrl"]
        assert await http.ask("/clusters") == ["standalone"]

    serving(body)


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("/clusters/a%20b", {}, 412, "Cluster name is not valid"),
        ("/clusters/a%2Fb", {}, 412, "Cluster name is not valid"),
        ("/clusters/x", [], 400, "object"),
        ("/clusters/x", b"", 400, "empty"),
        ("/clusters/x", b"{", 400, "not JSON"),
        ("/clusters/x", {"serviceUrl": "pulsar://x"}, 400, "Illegal service url"),
        ("/clusters/x", {"serviceUrl": "http://[::1"}, 400, "Illegal service url"),
        ("/clusters/x", {"serviceUrlTls": "http://x"}, 400, "Illegal service tls url"),
        ("/clusters/x", {"brokerServiceUrl": "http://x"}, 400, "Illegal broker service url"),
        ("/clusters/x", {"brokerServiceUrlTls": "pulsar://x"}, 400, "Illegal broker service tls url"),
        ("/clusters/x", {"proxyServiceUrl": "http://x"}, 400, "Illegal proxy service url"),
        ("/clusters/x", {"serviceUrl": ["http://x"]}, 400, "serviceUrl must be a string"),
        ("/clusters/x", {"brokerClientTlsEnabled": "maybe"}, 400, "true or false"),
        ("/clusters/x", {"peerClusterNames": "y"}, 400, "list of strings"),
        ("/clusters/x", {"proxyProtocol": "HTTP"}, 400, "SNI"),
        ("/clusters/x", {"listenerName": "x" * 300_000}, 405, "at most"),
    ],
)
def test_invalid_cluster_is_refused_with_the_reason(
    serving: Serving, path: str, body: object, status: int, reason: str
) -> None:
    async def asked(http: Http) -> None:
        assert reason in await http.reason(status, "PUT", path, body)
        assert await http.ask("/clusters") == ["standalone"]

    serving(asked)


def test_cluster_in_use_is_not_deleted(serving: Serving) -> None:
    async def body(http: Http) -> None:
        for cluster in ("c2", "c3"):
            assert await http.send("PUT", f"/clusters/{cluster}", C2) == (200, "")
        both = {"allowedClusters": ["standalone", "c2"]}
        assert await http.send("PUT", "/tenants/t", both) == (204, "")
        assert "tenant t" in await http.reason(412, "DELETE", "/clusters/c2")
        assert await http.send("POST", "/tenants/t", {"allowedClusters": ["standalone"]}) == (204, "")
        assert await http.send("POST", "/clusters/c3/peers", ["c2"]) == (204, "")
        assert "cluster c3" in await http.reason(412, "DELETE", "/clusters/c2")
        assert await http.send("DELETE", "/clusters/c3") == (204, "")
        assert await http.send("DELETE", "/clusters/c2") == (204, "")

    serving(body)


def test_peers_are_other_clusters_that_exist(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.ask("/clusters/standalone/peers") == []
        assert await http.send("PUT", "/clusters/c2", C2) == (200, "")
        assert await http.send("POST", "/clusters/standalone/peers", ["c2"]) == (204, "")
        assert await http.ask("/clusters/standalone/peers") == ["c2"]
        assert (await http.ask("/clusters/standalone"))["serviceUrl"] == "http://localhost:8080"
        peers = "/clusters/c2/peers"
        assert await http.reason(412, "POST", peers, ["c2"]) == "c2 itself can't be part of peer-list"
        assert await http.reason(412, "POST", peers, ["c9"]) == "Peer cluster c9 does not exist"
        assert await http.reason(404, "POST", "/clusters/c9/peers", []) == "Cluster does not exist"
        assert await http.reason(404, "GET", "/clusters/c9/peers") == "Cluster does not exist"
        assert "list of strings" in await http.reason(400, "POST", peers, {"a": 1})
        assert await http.send("POST", "/clusters/standalone/peers", []) == (204, "")
        assert await http.ask("/clusters/standalone/peers") == []

    serving(body)


def test_no_client_is_moved_to_another_cluster_and_the_address_is_kept(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = "/clusters/standalone/migrate"
        assert "no migration target" in await http.reason(404, "GET", path)
        reason = await http.reason(400, "POST", f"{path}?migrated=true", {})
        assert reason == "Cluster url must not be empty"
        assert "migration of clients" in await http.reason(405, "POST", f"{path}?migrated=true", C2)
        assert "no migration target" in await http.reason(404, "GET", path)
        assert await http.send("POST", path, C2) == (200, "")
        assert await http.ask(path) == {"migrated": False, "migratedClusterUrl": {**C2, "empty": False}}

    serving(body)
