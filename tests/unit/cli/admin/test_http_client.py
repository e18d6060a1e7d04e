"""Calls of `magnetar admin`, against a broker that is made up."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from magnetar.cli.main import main
from magnetar.common.security.certificates import Authority

X = "persistent://public/default/x"


class Broker(ThreadingHTTPServer):
    """Answers what `answers` says for a method and path, and keeps what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[tuple[str, str], tuple[int, object, dict[str, str]]] = {}
        self.raw: dict[tuple[str, str], tuple[bytes, dict[str, str]]] = {}
        self.asked: list[tuple[str, str, str, str | None]] = []
        self.request_ids: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do(self) -> None:
        broker = self.server
        assert isinstance(broker, Broker)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        broker.asked.append((self.command, self.path, body, self.headers.get("Authorization")))
        broker.request_ids.append(self.headers.get("X-Request-ID"))
        status, value, headers = broker.answers.get(
            (self.command, self.path), (404, {"reason": "nothing there"}, {})
        )
        data = b"" if value is None else json.dumps(value).encode()
        if (self.command, self.path) in broker.raw:
            status = 200
            data, headers = broker.raw[self.command, self.path]
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def broker() -> Iterator[Broker]:
    server = Broker()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def run(broker: Broker, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["admin", "--admin-url", broker.url, *arguments])


def test_json_may_stand_at_the_end(broker: Broker) -> None:
    broker.answers["GET", "/admin/v2/tenants"] = 200, ["a"], {}
    assert json.loads(run(broker, "tenants", "list", "--json").stdout) == ["a"]
    assert json.loads(run(broker, "--output", "table", "tenants", "list", "--json").stdout) == ["a"]


def test_a_write_follows_to_the_broker_that_owns_the_topic(broker: Broker) -> None:
    path = "/admin/v2/persistent/a/b/c"
    broker.answers["PUT", path] = 307, None, {"Location": f"{broker.url}{path}?authoritative=true"}
    broker.answers["PUT", f"{path}?authoritative=true"] = 204, None, {}
    assert run(broker, "topics", "create", "a/b/c", "-m", "k=v").exit_code == 0
    assert [body for _, _, body, _ in broker.asked] == ['{"k": "v"}'] * 2


def test_brokers_that_send_us_round_in_circles_are_left(broker: Broker) -> None:
    path = "/admin/v2/persistent/a/b/c"
    broker.answers["PUT", path] = 307, None, {"Location": path}
    result = run(broker, "topics", "create", "a/b/c")
    assert result.exit_code == 1
    assert "too many redirects" in result.output


@pytest.mark.parametrize("line", ["topics stats a/b/c", "topics create a/b/c", "topics delete a/b/c"])
def test_an_owner_that_does_not_answer_is_named(broker: Broker, line: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        gone = f"http://127.0.0.1:{other.getsockname()[1]}"
    path = "/admin/v2/persistent/a/b/c"
    for method, verb in (("GET", "/stats"), ("PUT", ""), ("DELETE", "")):
        broker.answers[method, path + verb] = 307, None, {"Location": f"{gone}{path}{verb}"}
    result = run(broker, *line.split())
    assert result.exit_code == 3
    assert f"{broker.url} redirects to {gone}, which does not answer: Connection" in result.output
    assert "no broker answers" not in result.output


def test_one_owner_that_is_gone_does_not_keep_the_others(broker: Broker) -> None:
    with_topics(broker)
    broker.answers["DELETE", f"{LISTED}/a1"] = 307, None, {"Location": "http://127.0.0.1:1/"}
    result = run(broker, "topics", "delete", "persistent://t/n/a.*", "--regex")
    assert result.exit_code == 1
    assert "1 of 2 topics deleted" in result.output


def test_only_a_broker_that_was_named_is_stopped(broker: Broker) -> None:
    path = "/admin/v2/brokers/shutdown?maxConcurrentUnloadPerSec=0&forcedTerminateTopic=false"
    broker.answers["POST", path] = 307, None, {"Location": f"http://b2:8080{path}"}
    result = run(broker, "brokers", "shutdown")
    assert result.exit_code == 1
    assert "redirects to one of several brokers, b2:8080: name the broker" in result.output
    broker.answers["POST", path] = 204, None, {}
    assert run(broker, "brokers", "shutdown").exit_code == 0


def test_a_redirect_from_https_to_http_is_not_followed(broker: Broker, tmp_path: Path) -> None:
    authority = Authority("test")
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    files = authority.issue("broker", ips=["127.0.0.1"]).write(tmp_path, "broker")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)
    broker.socket = context.wrap_socket(broker.socket, server_side=True)
    plain = broker.url
    secure = plain.replace("http://", "https://")
    trusting = ["admin", "--admin-url", secure, "--tls-trust-cert-path", str(tmp_path / "ca.pem")]
    broker.answers["GET", "/admin/v2/tenants"] = 307, None, {"Location": f"{plain}/elsewhere"}
    result = CliRunner().invoke(main, [*trusting, "--token", "secret", "tenants", "list"])
    assert result.exit_code == 1
    assert "without TLS, which is not followed: set webServicePortTls" in result.output
    assert [path for _, path, _, _ in broker.asked] == ["/admin/v2/tenants"]
    result = CliRunner().invoke(main, ["admin", "--admin-url", secure, "tenants", "list"])
    assert result.exit_code == 3
    assert "--tls-trust-cert-path" in result.output


def test_a_profile_gives_the_url_and_the_credentials(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "client.conf"
    path.write_text(f"webServiceUrl={broker.url}/\nauthPlugin=basic\nauthParams=me:secret\n")
    broker.answers["GET", "/admin/v2/tenants"] = 200, ["a"], {}
    result = CliRunner().invoke(main, ["admin", "--client-conf", str(path), "tenants", "list", "--json"])
    assert json.loads(result.stdout) == ["a"]
    assert [authorization for *_, authorization in broker.asked] == ["Basic bWU6c2VjcmV0"]


def test_redirect_to_a_file_url_is_refused(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text('"secret"')
    broker.answers["GET", "/admin/v2/tenants"] = 307, None, {"Location": file.as_uri()}
    result = run(broker, "tenants", "list")
    assert result.exit_code == 1
    assert f"redirects to the invalid URL '{file.as_uri()}'" in result.output


def test_reads_follow_what_stands_before_a_broker_and_writes_do_not(broker: Broker) -> None:
    for method in ("GET", "DELETE"):
        broker.answers[method, "/admin/v2/tenants"] = 301, None, {"Location": f"{broker.url}/elsewhere"}
        broker.answers[method, "/admin/v2/tenants/t"] = 301, None, {"Location": f"{broker.url}/elsewhere"}
        broker.answers[method, "/elsewhere"] = 200, ["a"], {}
    assert json.loads(run(broker, "tenants", "list", "--json").stdout) == ["a"]
    refused = run(broker, "tenants", "delete", "t")
    assert refused.exit_code == 1
    assert "301" in refused.output


def test_a_read_goes_round_in_no_circle_either(broker: Broker) -> None:
    path = "/admin/v2/persistent/a/b/c/stats"
    broker.answers["GET", path] = 307, None, {"Location": f"{broker.url}{path}"}
    result = run(broker, "topics", "stats", "a/b/c")
    assert result.exit_code == 1
    assert "too many redirects between brokers: 10" in result.output


@pytest.mark.parametrize("given", [("--token", "s3cret"), ("--auth-params", "token:s3cret")])
def test_a_token_is_shown_to_the_broker(broker: Broker, given: tuple[str, str]) -> None:
    broker.answers["GET", "/admin/v2/tenants"] = 200, [], {}
    result = CliRunner().invoke(main, ["admin", "--admin-url", broker.url, *given, "tenants", "list"])
    assert result.exit_code == 0
    assert broker.asked[0][3] == "Bearer s3cret"


def test_refusal_says_what_to_do(broker: Broker) -> None:
    broker.answers["GET", "/admin/v2/tenants"] = 401, {"reason": "who are you"}, {}
    result = run(broker, "tenants", "list")
    assert result.exit_code == 1
    assert "who are you (HTTP 401); give valid credentials with --token, --auth-plugin or" in result.output


def test_remedy_is_printed_once(broker: Broker) -> None:
    broker.answers["GET", "/admin/v2/tenants"] = 503, {"reason": "etcd is away"}, {}
    assert "away (HTTP 503); retry shortly, or use" in run(broker, "tenants", "list").output
    broker.answers["GET", "/admin/v2/tenants"] = 503, {"reason": "b2 did not answer; try again"}, {}
    assert run(broker, "tenants", "list").output.endswith("try again (HTTP 503)\n")


@pytest.mark.parametrize(
    ("command", "method", "status", "told"),
    [
        (("list",), "GET", 500, True),
        (("list",), "GET", 503, False),  # which logs have no line about
        (("delete", "acme"), "DELETE", 503, True),
        (("delete", "acme"), "DELETE", 409, False),
    ],
)
def test_broker_failure_is_printed_with_its_request_id(
    broker: Broker, command: tuple[str, ...], method: str, status: int, *, told: bool
) -> None:
    path = "/admin/v2/tenants" if method == "GET" else "/admin/v2/tenants/acme"
    broker.answers[method, path] = status, {"reason": "no"}, {}
    output = run(broker, "tenants", *command).output
    assert f"(HTTP {status})" in output
    assert (f"request_id {broker.request_ids[-1]}" in output) == told


LISTED = "/admin/v2/persistent/t/n"
TOPICS = [f"persistent://t/n/{name}" for name in ("a1", "a2-partition-0", "a2-partition-1", "b")]


def with_topics(broker: Broker) -> None:
    broker.answers["GET", LISTED] = 200, TOPICS, {}
    broker.answers["GET", f"{LISTED}/partitioned"] = 200, ["persistent://t/n/a2"], {}
    broker.answers["DELETE", f"{LISTED}/a1"] = 204, None, {}
    broker.answers["DELETE", f"{LISTED}/a2/partitions"] = 204, None, {}


def test_many_topics_are_deleted_partitioned_ones_as_a_whole(broker: Broker) -> None:
    with_topics(broker)
    result = run(broker, "topics", "delete", "persistent://t/n/a.*", "--regex")
    assert result.exit_code == 0
    assert "2 of 2 topics deleted" in result.output
    deleted = [path for method, path, *_ in broker.asked if method == "DELETE"]
    assert deleted == [f"{LISTED}/a1", f"{LISTED}/a2/partitions"]


def test_one_that_cannot_be_deleted_does_not_keep_the_others(broker: Broker, tmp_path: Path) -> None:
    with_topics(broker)
    names = tmp_path / "topics.txt"
    names.write_text("t/n/b\n\nt/n/a1\npersistent://t/n/a1\n")
    result = run(broker, "topics", "delete", str(names), "--from-file", "--force")
    assert result.exit_code == 1
    assert "2 failed:\n  persistent://t/n/b: nothing there (HTTP 404)" in result.output
    broker.answers["DELETE", f"{LISTED}/a1?force=true"] = 204, None, {}
    result = run(broker, "topics", "delete", str(names), "--from-file", "--force")
    assert "1 of 2 topics deleted" in result.output


def test_a_namespace_is_unloaded_a_bundle_at_a_time(broker: Broker) -> None:
    path = "/admin/v2/namespaces/t/n"
    bounds = ["0x00000000", "0x80000000", "0xffffffff"]
    broker.answers["GET", f"{path}/bundles"] = 200, {"boundaries": bounds, "numBundles": 2}, {}
    for low, high in (bounds[:2], bounds[1:]):
        broker.answers["PUT", f"{path}/{low}_{high}/unload"] = 204, None, {}
    assert "2 of 2 bundles unloaded" in run(broker, "namespaces", "unload", "t/n").output


def test_a_bundle_that_is_where_its_namespace_is_to_go_is_no_failure(broker: Broker) -> None:
    path = "/admin/v2/namespaces/t/n"
    broker.answers["GET", f"{path}/bundles"] = 200, {"boundaries": ["0x00000000", "0xffffffff"]}, {}
    unloading = f"{path}/0x00000000_0xffffffff/unload?destinationBroker=b2%3A1"
    broker.answers["PUT", unloading] = 412, {"reason": "bundle x of t/n is at b2:1 already"}, {}
    assert run(broker, "namespaces", "unload", "t/n", "-d", "b2:1").exit_code == 0
    broker.answers["PUT", unloading] = 503, {"reason": "b2:1 is not up"}, {}
    assert run(broker, "namespaces", "unload", "t/n", "-d", "b2:1").exit_code == 1


def test_records_without_records_are_a_table(broker: Broker) -> None:
    said = [{"brokerName": f"b{n}:1", "namespaceRegex": ["t/.*"], "primary": n == 1} for n in range(2)]
    said[1]["policyName"] = "p"
    broker.answers["GET", "/admin/v2/clusters/c/namespaceIsolationPolicies/brokers"] = 200, said, {}
    line = ["ns-isolation-policy", "brokers", "c"]
    assert json.loads(run(broker, *line).stdout) == said
    drawn = run(broker, "--output", "table", *line).stdout
    assert "brokerName" in drawn
    assert "policyName" in drawn
    assert "{" not in drawn


def test_topics_of_both_kinds_are_listed_unless_one_is_named(broker: Broker) -> None:
    broker.answers["GET", LISTED] = 200, ["persistent://t/n/a"], {}
    broker.answers["GET", LISTED.replace("persistent", "non-persistent")] = (
        200,
        ["non-persistent://t/n/b"],
        {},
    )
    both = json.loads(run(broker, "topics", "list", "t/n").stdout)
    assert both == ["persistent://t/n/a", "non-persistent://t/n/b"]
    one = json.loads(run(broker, "topics", "list", "t/n", "-td", "non_persistent").stdout)
    assert one == both[1:]


@pytest.mark.parametrize(
    ("line", "next_command"),
    [
        ("topics stats t/n/x", "topics list t/n"),
        ("topics skip t/n/x -s a%b -n 1", "topics subscriptions persistent://t/n/x"),
        ("topics list t/n", "namespaces list t"),
        ("namespaces policies t/n", "namespaces list t"),
        ("namespaces list t", "tenants list"),
        ("schemas get t/n/x", "topics list t/n"),
        ("clusters get c", "clusters list"),
    ],
)
def test_missing_object_error_says_how_to_list_existing_ones(
    broker: Broker, line: str, next_command: str
) -> None:
    result = run(broker, *line.split())
    assert result.exit_code == 1
    assert (
        result.output
        == f"Error: nothing there (HTTP 404); `magnetar admin {next_command}` lists existing ones\n"
    )


@pytest.mark.parametrize(
    "given",
    [
        ("--admin-url", "http://127.0.0.1:abc"),
        ("--admin-url", "http://"),
        ("--admin-url", "file:///etc"),
        ("--admin-url", "http://[::1"),
        ("--admin-url", "http://a b:1"),
        ("--admin-url", "localhost:8080"),
        ("--token", "two\nlines"),
        ("--token", "größe"),
    ],
)
def test_unsendable_value_is_a_usage_error(given: tuple[str, str]) -> None:
    result = CliRunner().invoke(main, ["admin", *given, "tenants", "list"])
    assert result.exit_code == 2
    assert "Error: " in result.output


def test_response_of_a_foreign_server_cannot_disturb_a_terminal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"http://127.0.0.1:{other.getsockname()[1]}"

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"\x1b[31mP\x00\x07" + b"x" * 1_000 + b"\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        result = CliRunner().invoke(main, ["admin", "--admin-url", url, "tenants", "list"])
        thread.join()
    assert result.exit_code == 3
    assert result.output.rstrip("\n").isprintable()
    assert len(result.output) < 500


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_host_that_can_have_no_address_is_not_there(host: str) -> None:
    result = CliRunner().invoke(main, ["admin", "--admin-url", f"http://{host}:80", "tenants", "list"])
    assert result.exit_code == 3
    assert f"no broker answers at http://{host}:80" in result.output


def test_doctor_says_so_too() -> None:
    arguments = ["doctor", "--cluster-only", "--admin-url", "http://a..b:1", "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert json.loads(result.stdout)[0]["state"] == "failure"


def test_doctor_tells_who_sends_on_from_a_broker(broker: Broker) -> None:
    path = "/admin/v2/brokers/health"
    broker.answers["GET", path] = 307, None, {"Location": f"{broker.url}/b{path}"}
    broker.answers["GET", f"/b{path}"] = 200, "ok", {}
    arguments = ["doctor", "--cluster-only", "--admin-url", broker.url, "--json"]
    found = {each["check"]: each for each in json.loads(CliRunner().invoke(main, arguments).stdout)}
    assert found[f"discovery {broker.url}"]["found"] == f"redirects to {broker.url.removeprefix('http://')}"
    assert f"broker {broker.url}" not in found


def test_the_bundles_of_a_broker_are_a_table_with_a_row_for_each(broker: Broker) -> None:
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    owned = {f"t/n/{bundle}": status for bundle in ("0x00000000_0x80000000", "0x80000000_0xffffffff")}
    broker.answers["GET", "/admin/v2/brokers/c/b1%3A8080/ownedNamespaces"] = 200, owned, {}
    line = ["brokers", "namespaces", "c", "-u", "b1:8080"]
    assert json.loads(run(broker, *line).stdout) == owned
    drawn = run(broker, "--output", "table", *line).stdout.splitlines()
    assert [each for each in drawn if "t/n/0x80000000_0xffffffff" in each and "shared" in each]
    broker.answers["GET", "/admin/v2/brokers/c/b1%3A8080/ownedNamespaces"] = 200, {}, {}
    assert run(broker, "--output", "table", *line).exit_code == 0


@pytest.mark.parametrize(
    "line",
    [
        ["admin", "namespaces", "list", "\udcff"],
        ["admin", "topics", "skip", "t", "-s", "\udcff", "-n", "1"],
        ["produce", "t", "-m", "x", "-k", "\udcff"],
    ],
)
def test_a_name_that_is_no_text_is_a_wrong_command_line(line: list[str]) -> None:
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 2
    assert "Error: '\\udcff' is not valid UTF-8" in result.output


@pytest.mark.parametrize(
    ("verb", "reason", "command"),
    [
        ("unsubscribe", f"Topic {X} not found", "topics list public/default"),
        ("peek-messages", f"Topic {X} not found", "topics list public/default"),
        ("peek-messages", "Namespace not found", "namespaces list public"),
        ("unsubscribe", "Subscription s not found", f"topics subscriptions {X}"),
    ],
)
def test_a_hint_names_a_command_that_finds_something(
    broker: Broker, verb: str, reason: str, command: str
) -> None:
    path = "/admin/v2/persistent/public/default/x/subscription/s"
    for asked in (("DELETE", path), ("GET", f"{path}/position/1")):
        broker.answers[asked] = 404, {"reason": reason}, {}
    done = run(broker, "topics", verb, "x", "-s", "s")
    assert done.exit_code == 1
    assert done.stderr == f"Error: {reason} (HTTP 404); `magnetar admin {command}` lists existing ones\n"


@pytest.mark.parametrize(
    ("verb", "page", "partitioned"),
    [
        ("stats", "stats", "partitioned-stats"),
        ("stats-internal", "internalStats", "partitioned-stats-internal"),
    ],
)
def test_statistics_of_a_partitioned_topic_name_its_command(
    broker: Broker, verb: str, page: str, partitioned: str
) -> None:
    path = "/admin/v2/persistent/public/default/orders"
    broker.answers["GET", f"{path}/{page}"] = 404, {"reason": "Topic orders not found"}, {}
    broker.answers["GET", f"{path}/partitions"] = 200, {"partitions": 4}, {}
    done = run(broker, "topics", verb, "orders")
    assert done.exit_code == 1
    assert f"orders has 4 partitions; use `magnetar admin topics {partitioned} orders`" in done.stderr
    broker.answers["GET", f"{path}/partitions"] = 200, {"partitions": 0}, {}
    assert "topics list public/default" in run(broker, "topics", verb, "orders").stderr


def test_why_a_subscription_sends_nothing_is_an_option_of_stats(broker: Broker) -> None:
    path = "/admin/v2/persistent/public/default/x/stats?whyNotDispatching=true"
    broker.answers["GET", path] = 200, {"subscriptions": {"s": {"whyNotDispatching": "no permits"}}}, {}
    assert "no permits" in run(broker, "topics", "stats", "x", "--why-not-dispatching").stdout


@pytest.mark.parametrize(
    "answer", [b"\x00\x00\x00\x26\x00\x00\x00\x22\x08\x03\xff\n", b""], ids=["bytes", "end"]
)
def test_a_port_that_does_not_speak_http_is_said_to_be_one(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            one, _ = listener.accept()
            with one:
                one.recv(4_096)
                one.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        done = CliRunner().invoke(main, ["admin", "--admin-url", url, "tenants", "list"])
        thread.join()
    assert done.exit_code == 3
    assert done.stderr.isprintable() or "\x00" not in done.stderr
    assert "usually 8080" in done.stderr
