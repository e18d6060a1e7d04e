"""The chart with TLS and authentication: certificates, tokens, mounts, ports, and what is refused."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.deploy.chart import (
    EVERYTHING,
    EXTERNAL,
    NAMESPACE,
    SECURE,
    VALUE_SETS,
    Object,
    Rendered,
    named,
    refusal,
    render,
)
from tests.deploy.chart_secrets import MOUNTS
from tests.deploy.test_helm_chart import notes
from tests.deploy.test_helm_cluster import allowed
from tools.chart.values_file import CHART

pytestmark = pytest.mark.usefixtures("helm_is_there")

EXISTING = {
    "clients": {"broker": "c-broker", "discovery": "c-discovery"},
    "services": {
        name: f"s-{name}" for name in ("bookie", "broker", "discovery", "etcd", "job", "admin", "backup")
    },
}


@pytest.fixture
def secure() -> Rendered:
    values, small = VALUE_SETS["secure"]
    return render(values, small=small)


def settings(rendered: Rendered, component: str) -> dict[str, str]:
    lines = rendered.settings(component).splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def certificates(rendered: Rendered) -> dict[str, Object]:
    return {one["metadata"]["name"]: one["spec"] for one in rendered.of("Certificate")}


# -- off


@pytest.mark.parametrize("name", ["defaults", "small", "bare", "external-etcd", "service-monitor"])
def test_without_these_values_nothing_of_them_is_there(name: str) -> None:
    values, small = VALUE_SETS[name]
    text = json.dumps([one for one in render(values, small=small).objects if one["kind"] != "PrometheusRule"])
    for word in ("6651", "8443", "spiffe", "cert-manager", MOUNTS, "https:", "authentication", ".jwt"):
        assert word not in text.replace("https://etcd.io", ""), word
    assert not re.search(r'\btls[A-Z]|"secret":', text)


# -- certificates


def test_authorities_keep_their_keys_and_leaves_do_not(secure: Rendered) -> None:
    found = certificates(secure)
    authorities = {name for name, one in found.items() if one.get("isCA")}
    assert authorities == {"magnetar-clients-ca", "magnetar-services-ca"}
    for name, one in found.items():
        key = one["privateKey"]
        assert (key["algorithm"], key["size"]) == ("ECDSA", 256)
        if name in authorities:
            assert (key["rotationPolicy"], one["duration"]) == ("Never", "87600h")
            assert one["issuerRef"]["name"] == "magnetar-selfsigned"
        else:
            assert (key["rotationPolicy"], one["duration"], one["renewBefore"]) == ("Always", "2160h", "720h")
            side = name.rsplit("-", 2)[1]
            assert one["issuerRef"] == {"kind": "Issuer", "name": f"magnetar-{side}-ca"}
            assert {"server auth", "client auth"} <= set(one["usages"])
        assert one["secretName"] == name


def test_services_are_known_by_their_uri_and_reached_by_their_names(secure: Rendered) -> None:
    found = certificates(secure)
    for service in ("bookie", "broker", "discovery", "etcd", "admin"):
        one = found[f"magnetar-{service}-services-tls"]
        assert one["uris"] == [f"spiffe://magnetar/{service}"]
        assert one["commonName"] == f"magnetar-{service}"
    for service, sides in (
        ("bookie", ["services"]),
        ("etcd", ["services"]),
        ("broker", ["services", "clients"]),
    ):
        for side in sides:
            names = found[f"magnetar-{service}-{side}-tls"]["dnsNames"]
            assert f"*.magnetar-{service}.{NAMESPACE}.svc.cluster.local" in names
            assert f"magnetar-{service}.{NAMESPACE}.svc.cluster.local" in names
    for service in ("broker", "discovery"):
        assert "uris" not in found[f"magnetar-{service}-clients-tls"], (
            "a client's authority makes no services"
        )
    backup = found["magnetar-backup-services-tls"]
    assert backup["commonName"] == "magnetar-backup"
    assert {"uris", "dnsNames"} & backup.keys() == set(), "it reads metadata and calls no service"
    outside = {"tls.clients.dnsNames": ["pulsar.example.com"], "tls.clients.ipAddresses": ["192.0.2.1"]}
    leaf = certificates(render({**SECURE, **outside}))["magnetar-discovery-clients-tls"]
    assert "pulsar.example.com" in leaf["dnsNames"]
    assert "192.0.2.1" in leaf["ipAddresses"]


def test_existing_secrets_and_issuers_take_the_place_of_made_ones() -> None:
    given = render({**SECURE, "tls.existingSecret": EXISTING, "tls.certManager.enabled": False})
    assert not given.of("Certificate")
    assert not given.of("Issuer")
    for component in ("bookie", "broker", "discovery", "etcd"):
        volumes = named(given.pod(component)["volumes"])
        assert volumes["services-tls"]["secret"]["secretName"] == f"s-{component}"
    issuer = {"kind": "ClusterIssuer", "name": "corporate"}
    own = render({**SECURE, "tls.certManager.issuerRef": issuer})
    assert certificates(own)["magnetar-discovery-clients-tls"]["issuerRef"] == issuer
    assert certificates(own)["magnetar-discovery-services-tls"]["issuerRef"]["name"] == "magnetar-services-ca"
    assert "magnetar-clients-ca" not in certificates(own)


# -- secrets


@pytest.mark.parametrize("name", ["secure", "secure-external-etcd"])
def test_secrets_are_whole_directories_that_only_the_owner_reads(name: str) -> None:
    values, small = VALUE_SETS[name]
    seen = 0
    for pod_name, pod in render(values, small=small).pods():
        volumes = {each["name"]: each["secret"] for each in pod["volumes"] if "secret" in each}
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            assert "secret" not in json.dumps(container.get("env", [])).lower(), pod_name
            assert "envFrom" not in container
            for mount in container["volumeMounts"]:
                if mount["name"] in volumes:
                    seen += 1
                    assert "subPath" not in mount
                    assert mount["readOnly"] is True
                    assert volumes[mount["name"]]["defaultMode"] == 0o400
                    assert mount["mountPath"] == f"{MOUNTS}/{mount['name']}"
    assert seen > 10


@pytest.mark.parametrize("name", ["secure", "secure-external-etcd"])
def test_every_file_that_is_named_is_mounted(name: str) -> None:
    values, small = VALUE_SETS[name]
    chart = render(values, small=small)
    for component in (
        "bookie",
        "broker",
        "discovery",
        "tools",
        "test",
        *(["etcd"] if name == "secure" else []),
    ):
        if name != "secure" and component == "tools":
            continue
        container = chart.container(component)
        text = json.dumps(container) + (
            chart.settings(component) if component in ("bookie", "broker", "discovery") else ""
        )
        volumes = named(chart.pod(component)["volumes"])
        files = set(re.findall(rf"{MOUNTS}/([\w-]+)/([\w.-]+)", text))
        assert files
        for mount, file in files:
            assert mount in named(container["volumeMounts"]), component
            items = volumes[mount]["secret"].get("items")
            assert items is None or {"key": file, "path": file} in items
            assert items is not None or file in ("tls.crt", "tls.key", "ca.crt")


def test_a_pod_has_only_the_keys_and_tokens_that_are_its_own(secure: Rendered) -> None:
    for component in ("tools", "test"):
        volumes = named(secure.pod(component)["volumes"])
        assert volumes["clients-tls"]["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
        assert volumes["tokens"]["secret"]["items"] == [{"key": "admin.jwt", "path": "admin.jwt"}]
        assert "token-key" not in volumes
        assert volumes["services-tls"]["secret"]["secretName"] == "magnetar-admin-services-tls"
    for component, service in (("bookie", "bookie"), ("bookie-check", "backup"), ("etcd-users", "etcd")):
        volumes = named(secure.pod(component)["volumes"])
        assert volumes.keys() & {"token-key", "tokens", "clients-tls"} == set()
        assert volumes["services-tls"]["secret"]["secretName"] == f"magnetar-{service}-services-tls"
    plain = render({"auth.enabled": True})
    for component in ("broker", "discovery"):
        items = named(plain.pod(component)["volumes"])["tokens"]["secret"]["items"]
        assert items == [{"key": f"{component}.jwt", "path": f"{component}.jwt"}]
        told = settings(plain, component)["brokerClientAuthenticationParameters"]
        assert told == f"file://{MOUNTS}/tokens/{component}.jwt"


# -- services


def test_discovery_opens_only_tls(secure: Rendered) -> None:
    told = settings(secure, "discovery")
    assert (told["servicePort"], told["webServicePort"]) == ("", "")
    assert (told["servicePortTls"], told["webServicePortTls"]) == ("6651", "8443")
    container = secure.container("discovery")
    assert set(named(container["ports"])) == {"pulsar-ssl", "https"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "https", "scheme": "HTTPS"}
    # A proxy's role may not ask for itself, so that is done with a token of another role.
    assert told["brokerClientAuthenticationPlugin"].endswith(".AuthenticationToken")
    assert told["brokerClientAuthenticationParameters"] == f"file://{MOUNTS}/tokens/discovery.jwt"
    assert told["brokerClientCertificateFilePath"] == f"{MOUNTS}/clients-tls/tls.crt"
    assert told["proxyRoles"] == "magnetar-discovery"
    by_certificate = settings(render({**SECURE, "auth.tokens.enabled": False}), "discovery")
    assert by_certificate["brokerClientAuthenticationPlugin"].endswith(".AuthenticationTls")
    assert "proxyRoles" not in by_certificate
    assert by_certificate["superUserRoles"].endswith(",magnetar-discovery")
    both = render({**SECURE, "tls.clients.only": False})
    assert "servicePort" not in settings(both, "discovery")
    assert {"pulsar", "http", "pulsar-ssl", "https"} <= named(both.container("discovery")["ports"]).keys()


def test_brokers_open_only_tls_and_know_each_other(secure: Rendered) -> None:
    told = settings(secure, "broker")
    assert (told["brokerServicePort"], told["webServicePort"]) == ("", "")
    assert (told["brokerServicePortTls"], told["webServicePortTls"]) == ("6651", "8443")
    assert told["brokerClientTlsEnabled"] == "true"
    assert told["superUserRoles"] == "magnetar-admin,magnetar-broker,magnetar-discovery-lookups"
    assert told["proxyRoles"] == "magnetar-discovery"
    providers = told["authenticationProviders"].split(",")
    assert [each.rpartition("Provider")[2] for each in providers] == ["Tls", "Token"]
    assert set(named(secure.container("broker")["ports"])) == {"pulsar-ssl", "https", "control"}
    both = render({**SECURE, "tls.clients.only": False})
    assert "brokerServicePort" not in settings(both, "broker")
    assert {"pulsar", "http", "pulsar-ssl", "https"} <= named(both.container("broker")["ports"]).keys()
    assert both.container("broker")["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}


def test_clients_reach_tls_ports_alone(secure: Rendered) -> None:
    for component in ("broker", "discovery"):
        for port in (6651, 8443):
            assert allowed(secure, "stranger", component, port)
        for port in (6650, 8080):
            assert not allowed(secure, "stranger", component, port)
    ports = {port["name"]: port["port"] for port in secure.only("Service", "discovery")["spec"]["ports"]}
    assert ports == {"pulsar-ssl": 6651, "https": 8443}
    node_ports = {"discovery.service.type": "NodePort", "discovery.service.nodePorts": {"pulsar-ssl": 30651}}
    service = render({**SECURE, **node_ports}).only("Service", "discovery")["spec"]
    assert named(service["ports"])["pulsar-ssl"]["nodePort"] == 30651
    few = {"networkPolicy.clientsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}
    policies = render({**SECURE, **few, "networkPolicy.metricsFrom": [{"podSelector": {}}]})
    assert allowed(policies, "broker", "etcd", 2381), "the wait for etcd asks there"
    (endpoint,) = secure.only("PodMonitor", "broker")["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["scheme"]) == ("https", "https")


def test_etcd_asks_clients_and_members_for_certificates(secure: Rendered) -> None:
    command = secure.container("etcd")["command"]
    flags = dict(each.removeprefix("--").partition("=")[::2] for each in command[1:])
    for prefix in ("", "peer-"):
        assert flags[f"{prefix}client-cert-auth"] == ""
        assert flags[f"{prefix}cert-file"] == f"{MOUNTS}/services-tls/tls.crt"
        assert flags[f"{prefix}key-file"] == f"{MOUNTS}/services-tls/tls.key"
        assert flags[f"{prefix}trusted-ca-file"] == f"{MOUNTS}/services-tls/ca.crt"
    for name in (
        "listen-client-urls",
        "advertise-client-urls",
        "listen-peer-urls",
        "initial-advertise-peer-urls",
    ):
        assert flags[name].startswith("https://"), name
    assert all("=https://" in member for member in flags["initial-cluster"].split(","))
    assert flags["listen-metrics-urls"].startswith("http://"), "probes show no certificate"
    for component, key in (("bookie", "metadataServiceUri"), ("broker", "metadataStoreUrl")):
        url = settings(secure, component)[key]
        assert url.startswith("etcd:https://magnetar-etcd-0.")
        assert url.count("https://") == 3
    wait = named(secure.pod("broker")["initContainers"])["wait-for-etcd"]["command"][3]
    assert {each.rpartition(":")[2] for each in wait.split(",")} == {"2381"}
    external = render(VALUE_SETS["secure-external-etcd"][0])
    assert "initContainers" not in external.pod("broker"), "no page of it is known"
    assert settings(external, "broker")["magnetarMetadataTlsKeyFilePath"] == f"{MOUNTS}/etcd-tls/tls.key"


def test_a_hook_makes_users_of_etcd_as_the_member_that_administers_them(secure: Rendered) -> None:
    job = secure.only("Job", "etcd-users")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade"
    container = secure.container("etcd-users")
    assert container["command"] == ["magnetar", "admin", "metadata", "users"]
    told = {entry["name"]: entry["value"] for entry in container["env"]}
    assert told["MAGNETAR_METADATA_STORE_URL"].startswith("etcd:https://magnetar-etcd-0.")
    assert told["MAGNETAR_CLUSTER_NAME"] == "magnetar"
    assert "MAGNETAR_TOKEN" not in told
    assert certificates(secure)["magnetar-etcd-services-tls"]["commonName"] == "magnetar-etcd"
    assert "wait-for-etcd" in named(secure.pod("etcd-users")["initContainers"])
    for values in ({"tls.etcd.users": False}, {"tls.etcd.enabled": False}):
        assert not render({**SECURE, **values}).of("Job", "etcd-users")
    assert not render(VALUE_SETS["secure-external-etcd"][0]).of("Job", "etcd-users")


def test_the_command_line_has_credentials_and_notes_say_how_to_get_them(
    tmp_path: Path, secure: Rendered
) -> None:
    for component in ("tools", "test"):
        told = {entry["name"]: entry["value"] for entry in secure.container(component)["env"]}
        assert told["MAGNETAR_SERVICE_URL"] == "pulsar+ssl://magnetar-discovery:6651"
        assert told["MAGNETAR_ADMIN_URL"] == "https://magnetar-discovery:8443"
        assert told["SSL_CERT_FILE"] == f"{MOUNTS}/clients-tls/ca.crt"
        assert told["MAGNETAR_TOKEN"] == f"file:{MOUNTS}/tokens/admin.jwt"
        assert told["MAGNETAR_MAGNETAR_METADATA_TLS_KEY_FILE_PATH"] == f"{MOUNTS}/services-tls/tls.key"
    text = notes(tmp_path / "chart", "--values", str(CHART / "values-secure.yaml"))
    assert "get secret magnetar-tokens -o jsonpath='{.data.admin\\.jwt}' | base64 -d" in text
    assert f"pulsar+ssl://magnetar-discovery.{NAMESPACE}.svc.cluster.local:6651" in text
    assert "there is no authentication" not in text


def test_ways_to_be_known_are_settings_of_brokers() -> None:
    told = settings(render(VALUE_SETS["secure-external-etcd"][0]), "broker")
    assert told["authenticationProviders"].count("AuthenticationProvider") == 4
    assert told["basicAuthConf"] == f"file://{MOUNTS}/passwords/htpasswd"
    assert told["openIDAllowedTokenIssuers"] == "https://issuer.example.com"
    assert told["openIDTokenIssuerTrustCertsFilePath"] == f"{MOUNTS}/openid/ca.crt"
    more = settings(render({**SECURE, "auth.superUsers": ["ops"], "auth.anonymousRole": "guest"}), "broker")
    assert more["superUserRoles"].endswith(",ops")
    assert more["anonymousUserRole"] == "guest"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"tls.clients.enabled": True}, "name a secret in tls.existingSecret.clients.broker"),
        ({"tls.internal.enabled": True}, "name a secret in tls.existingSecret.services.bookie"),
        ({**EXTERNAL, "tls.etcd.enabled": True}, "tls.etcd.existingSecret has to name a secret"),
        ({**SECURE, "tls.etcd.existingSecret": "x"}, "is for externalEtcd"),
        ({**SECURE, "tls.clients.requireCertificate": True}, "probes show no certificate"),
        ({"auth.authorization.enabled": True}, "needs auth.enabled"),
        ({"auth.enabled": True, "auth.tokens.enabled": False}, "a way to be known to each other"),
        ({"auth.enabled": True, "auth.openid.enabled": True}, "auth.openid.allowedTokenIssuers"),
        ({**SECURE, "auth.tokens.enabled": False, "discovery.proxy": True}, "discovery needs a token"),
        ({"auth.enabled": True, "auth.tokens.secretKey": "k"}, "auth.existingSecret has to name"),
        ({"auth.enabled": True, "auth.existingSecret": "t"}, "auth.tokens.secretKey has to name"),
        ({"auth.enabled": True, "rbac.create": False}, "no hook can make tokens"),
        (
            {**SECURE, "broker.config": {"superUserRoles": ["me"]}},
            "broker.config.superUserRoles: the chart sets",
        ),
    ],
)
def test_combinations_that_cannot_work_are_refused(values: Mapping[str, Any], reason: str) -> None:
    assert reason in refusal(values)


def test_offload_jobs_reach_brokers_and_bookies_by_the_certificate_of_a_job() -> None:
    chart = render({**SECURE, "offload.enabled": True})
    leaf = certificates(chart)["magnetar-job-services-tls"]
    assert leaf["uris"] == ["spiffe://magnetar/job"]
    pod, container = chart.pod("offload"), chart.container("offload")
    given = dict(each.removeprefix("--").split("=", 1) for each in container["args"] if "=" in each)
    assert given["service"] == f"grpcs://magnetar-brokers.{NAMESPACE}.svc.cluster.local:6750"
    mount = named(container["volumeMounts"])["services-tls"]["mountPath"]
    assert given["service-trust-certs"] == f"{mount}/ca.crt"
    assert given["service-certificate"] == f"{mount}/tls.crt"
    assert given["service-key"] == f"{mount}/tls.key"
    secret = named(pod["volumes"])["services-tls"]["secret"]
    assert (secret["secretName"], secret.get("items")) == ("magnetar-job-services-tls", None)
    brokers = certificates(chart)["magnetar-broker-services-tls"]["dnsNames"]
    assert f"magnetar-brokers.{NAMESPACE}.svc.cluster.local" in brokers
    plain = render({"offload.enabled": True}).container("offload")["args"]
    assert not [each for each in plain if "tls" in each or "grpcs" in each]


# -- tokens


def test_the_hook_may_make_secrets_before_anything_needs_them(secure: Rendered) -> None:
    job = secure.only("Job", "make-tokens")
    weights = {}
    for kind in ("ServiceAccount", "Role", "RoleBinding", "Job"):
        notes_of = secure.only(kind, "make-tokens")["metadata"]["annotations"]
        assert notes_of["helm.sh/hook"] == "pre-install,pre-upgrade"
        weights[kind] = int(notes_of["helm.sh/hook-weight"])
    assert all(weights[kind] < weights["Job"] for kind in weights if kind != "Job")
    rules = secure.only("Role", "make-tokens")["rules"]
    assert [rule["verbs"] for rule in rules] == [["get"], ["create"]]
    assert rules[0]["resourceNames"] == ["magnetar-token-key", "magnetar-tokens"]
    pod = job["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "magnetar-make-tokens"
    given = {"auth.tokens.secretKey": "key", "auth.existingSecret": "tokens"}
    own = render({**EVERYTHING, "auth.enabled": True, **given})
    assert not own.of("Job", "make-tokens")
    assert not own.of("Role")
    assert named(own.pod("broker")["volumes"])["token-key"]["secret"]["secretName"] == "key"


class _Api(BaseHTTPRequestHandler):
    """An API server that knows secrets."""

    secrets: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        self._answer(200 if self.path.rpartition("/")[2] in self.secrets else 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["Authorization"] == "Bearer account"
        self.secrets[body["metadata"]["name"]] = body["data"]
        self._answer(201)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(_Api, "secrets", {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def make_tokens(api: str, account: Path) -> subprocess.CompletedProcess[str]:
    """Run the script, with another account and without TLS to the API server."""
    text = (CHART / "files/make_tokens.py").read_text(encoding="utf-8")
    text = text.replace("/var/run/secrets/kubernetes.io/serviceaccount", str(account))
    text = text.replace('f"https://{server}{path}"', f'f"{api}{{path}}"')
    text = text.replace('ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))', "None")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "KUBERNETES_SERVICE_HOST": "api",
        "KUBERNETES_SERVICE_PORT": "443",
    }
    command = [sys.executable, "-I", "-c", text, "key", "tokens"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_tokens_are_made_once_and_verify(api: str, tmp_path: Path) -> None:
    import jwt

    (tmp_path / "token").write_text("account\n")
    (tmp_path / "namespace").write_text("messaging")
    done = make_tokens(api, tmp_path)
    assert done.returncode == 0, done.stderr
    key = base64.b64decode(_Api.secrets["key"]["secret.key"])
    assert len(key) == 32
    made = {name: base64.b64decode(data).decode() for name, data in _Api.secrets["tokens"].items()}
    assert made.keys() == {"admin.jwt", "broker.jwt", "discovery.jwt"}
    for name, token in made.items():
        role = {"discovery.jwt": "magnetar-discovery-lookups"}.get(
            name, f"magnetar-{name.removesuffix('.jwt')}"
        )
        assert jwt.decode(token, key, algorithms=["HS256"])["sub"] == role
        assert token not in done.stdout + done.stderr
    before = dict(_Api.secrets)
    again = make_tokens(api, tmp_path)
    assert (again.returncode, _Api.secrets) == (0, before)
    assert "they stay" in again.stdout
    del _Api.secrets["tokens"]
    half = make_tokens(api, tmp_path)
    assert half.returncode == 1
    assert "only one of key and tokens is there" in half.stderr
