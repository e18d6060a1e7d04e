"""What a careless script or somebody hostile sends: each is refused with a reason, and does nothing else."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integration.harness import Endpoint
from tests.integration.rest import Reply, Rest

pytestmark = pytest.mark.usefixtures("our_contract")

BODY_BYTES_MAX = 1024 * 1024
JSON = "application/json"


def send(
    endpoint: Endpoint,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Reply:
    """One call whose path and headers go out as they are written."""
    where = urlsplit(endpoint.http_url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        try:
            if body:
                connection.send(body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was refused before all of it was read; the answer says why
        with connection.getresponse() as response:
            return Reply(response.status, response.read(), dict(response.headers))
    finally:
        connection.close()


def put_policy(endpoint: Endpoint, namespace: str, body: bytes, **headers: str) -> Reply:
    """Set a namespace's delayed delivery to a body as it is."""
    path = f"/admin/v2/namespaces/{namespace}/delayedDelivery"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return send(endpoint, "POST", path, body, named)


GOOD = b'{"tickTime": 1, "active": true}'


@pytest.mark.parametrize(
    "content_type",
    [
        JSON,
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        "application/vnd.partitioned-topic-metadata+json",
    ],
)
def test_a_body_of_a_type_that_is_json_is_read(endpoint: Endpoint, namespace: str, content_type: str) -> None:
    assert put_policy(endpoint, namespace, GOOD, Content_Type=content_type).status == 204


def test_a_body_without_a_type_is_read_as_json(endpoint: Endpoint, namespace: str) -> None:
    assert put_policy(endpoint, namespace, GOOD).status == 204


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/json",
        "",
        "x",
    ],
)
def test_a_body_of_another_type_is_refused(
    endpoint: Endpoint, rest: Rest, namespace: str, content_type: str
) -> None:
    reply = put_policy(endpoint, namespace, GOOD, Content_Type=content_type)
    assert reply.status == 415
    assert "application/json" in reply.reason
    assert rest.get(f"/namespaces/{namespace}/delayedDelivery") is None


def test_a_body_may_have_a_mebibyte_and_no_more(endpoint: Endpoint, rest: Rest, namespace: str) -> None:
    room = b" " * (BODY_BYTES_MAX - len(GOOD))
    assert put_policy(endpoint, namespace, GOOD + room, Content_Type=JSON).status == 204
    for extra in (1, 20 * BODY_BYTES_MAX):
        reply = put_policy(endpoint, namespace, GOOD + room + b" " * extra, Content_Type=JSON)
        assert (reply.status, reply.reason) == (413, f"the body has more than {BODY_BYTES_MAX} bytes")
    assert rest.call("GET", "/tenants").status == 200


def test_a_small_body_that_unpacks_to_a_large_one_is_too_large(endpoint: Endpoint, namespace: str) -> None:
    packed = {"Content_Type": JSON, "Content_Encoding": "gzip"}
    assert put_policy(endpoint, namespace, gzip.compress(GOOD), **packed).status == 204
    bomb = gzip.compress(GOOD + b" " * (64 * BODY_BYTES_MAX))
    assert len(bomb) < BODY_BYTES_MAX // 8
    reply = put_policy(endpoint, namespace, bomb, **packed)
    assert (reply.status, reply.reason) == (413, f"the body has more than {BODY_BYTES_MAX} bytes")


def test_a_body_that_is_not_packed_as_it_says_is_malformed(endpoint: Endpoint, namespace: str) -> None:
    reply = put_policy(endpoint, namespace, GOOD, Content_Type=JSON, Content_Encoding="gzip")
    assert reply.status == 400
    assert "body" in reply.reason


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{'tickTime': 1}",
        b"\xff\xfe\xfd",
        b'{"tickTime": "\xff"}',
        b"\x00",
        b"[" * 500_000,
        b'{"a":' * 150_000,
        b'{"tickTime": ' + b"9" * 5_000 + b"}",
        b'{"tickTime": 9223372036854775808}',
        b'{"tickTime": -9223372036854775809}',
        b'{"tickTime": 1e999}',
        b'{"tickTime": -1e999}',
        b'{"tickTime": NaN}',
        b'{"tickTime": Infinity}',
        b'{"tickTime": "1s"}',
        b'{"tickTime": true}',
        b'{"tickTime": [1]}',
        b'{"active": 1.0}',
        b'{"active": "yes"}',
        b'"text"',
        b"[]",
        b"1",
        b"true",
        b'{"tickTime": 1} {}',
    ],
    ids=lambda body: repr(body[:30]),
)
def test_a_body_that_is_not_what_is_asked_for_is_refused_and_changes_nothing(
    endpoint: Endpoint, rest: Rest, namespace: str, body: bytes
) -> None:
    reply = put_policy(endpoint, namespace, body, Content_Type=JSON)
    assert reply.status == 400
    assert reply.reason
    assert rest.get(f"/namespaces/{namespace}/delayedDelivery") is None


def test_numbers_that_no_number_can_be_are_never_shown(endpoint: Endpoint, rest: Rest) -> None:
    before = rest.get("/resource-quotas")
    body = b'{"memory": 1e400, "dynamic": true}'
    reply = send(endpoint, "POST", "/admin/v2/resource-quotas", body, {"Content-Type": JSON})
    assert reply.status == 400
    assert rest.get("/resource-quotas") == before


def test_unknown_members_are_ignored_wherever_a_body_is_an_object(rest: Rest, namespace: str) -> None:
    tenant = namespace.partition("/")[0]
    unknown: dict[str, Any] = {"nosuch": {"deep": [1, None, {}]}, "": 1, "\x00": "x"}
    rest.do("POST", f"/tenants/{tenant}", {"allowedClusters": [rest.endpoint.cluster], **unknown})
    rest.do("PUT", f"/namespaces/{tenant}/more", {"message_ttl_in_seconds": 7, **unknown})
    assert rest.get(f"/namespaces/{tenant}/more/messageTTL") == 7
    rest.do("POST", f"/namespaces/{namespace}/delayedDelivery", {"tickTime": 3, "active": True, **unknown})
    assert rest.get(f"/namespaces/{namespace}/delayedDelivery")["tickTime"] == 3
    rest.do("POST", f"/namespaces/{namespace}/retention", {"retentionTimeInMinutes": 0, **unknown})


def test_last_of_two_equal_json_members_counts(endpoint: Endpoint, rest: Rest, namespace: str) -> None:
    body = b'{"tickTime": "wrong", "active": true, "tickTime": 1, "tickTime": 2}'
    assert put_policy(endpoint, namespace, body, Content_Type=JSON).status == 204
    assert rest.get(f"/namespaces/{namespace}/delayedDelivery")["tickTime"] == 2


LONG = "x" * 5_000


@pytest.mark.parametrize(
    ("path", "status"),
    [
        # Names of tenants and namespaces are of few characters, whichever way they are written.
        ("/tenants/a%20b", 412),
        ("/tenants/a+b", 412),
        ("/tenants/a%2Fb", 412),
        ("/tenants/a%252Fb", 412),
        ("/tenants/%2E%2E", 412),
        ("/tenants/..", 412),
        ("/tenants/.", 412),
        ("/tenants/%00", 412),
        ("/tenants/%FF", 412),
        ("/tenants/%C3%A9", 412),
        ("/tenants/%", 412),
        ("/tenants/%zz", 412),
        (f"/tenants/{LONG}", 412),
        ("/namespaces/{namespace}%2F..%2F..%2Fpulsar", 412),
        ("/namespaces/%2E%2E/%2E%2E", 412),
        ("/namespaces/../tenants", 412),
        # A slash that is not encoded begins another segment.
        ("/tenants/a/b/c/d", 404),
        ("/tenants//", 404),
        ("//tenants", 404),
        ("/tenants/../../../etc/passwd", 404),
        ("/persistent/{namespace}/a/b/c/d/e", 404),
        ("/persistent/{namespace}/%00/stats", 404),
        ("/persistent/{namespace}/%FF/stats", 412),
        ("/persistent/{namespace}/%ED%A0%80/stats", 412),
        ("/persistent/{namespace}/%20/stats", 412),
        ("/persistent/{namespace}/" + LONG + "/stats", 412),
        ("/persistent/{namespace}/a%2Fb/stats", 412),
        ("/persistent/{namespace}/nosuch%2F..%2Fother/stats", 412),
        ("/persistent/{namespace}/../stats", 404),
        ("/persistent/{namespace}/nosuch/stats?getPreciseBacklog=%FF&getPreciseBacklog=%00", 404),
        ("/persistent/{namespace}/nosuch/stats?%FF=1", 404),
    ],
    ids=lambda value: str(value)[:40],
)
def test_tricks_with_paths_lead_nowhere(endpoint: Endpoint, namespace: str, path: str, status: int) -> None:
    reply = send(endpoint, "GET", "/admin/v2" + path.replace("{namespace}", namespace))
    assert reply.status == status, reply
    assert reply.reason


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ("a%20b", "a b"),
        ("a+b", "a b"),
        ("a%2Bb", "a+b"),
        ("a%252Fb", "a%2Fb"),
        ("a%00b", "a\0b"),
        ("%252e%252e", "%2e%2e"),
        ("%C3%A9", "é"),
        ("%F0%9F%98%80", "😀"),
        ("a%3Fb%23c", "a?b#c"),
        ("a%22b%5Cc", 'a"b\\c'),
        ("__proto__", "__proto__"),
        ("%27%3B--", "';--"),
    ],
)
def test_an_odd_name_of_a_topic_is_that_name_and_nothing_else(
    endpoint: Endpoint, rest: Rest, namespace: str, sent: str, name: str
) -> None:
    path = f"/persistent/{namespace}/{sent}"
    assert send(endpoint, "PUT", f"/admin/v2{path}").status == 204
    assert rest.get(f"/persistent/{namespace}") == [f"persistent://{namespace}/{name}"]
    assert rest.get(f"{path}/stats")["msgInCounter"] == 0
    rest.do("DELETE", path)
    assert rest.get(f"/persistent/{namespace}") == []


@pytest.mark.parametrize("method", ["PATCH", "TRACE", "OPTIONS"])
def test_a_verb_that_a_path_does_not_have_is_refused_with_those_that_it_has(
    endpoint: Endpoint, method: str
) -> None:
    reply = send(endpoint, method, "/admin/v2/tenants/acme")
    assert reply.status == 405
    assert reply.reason
    assert {verb.strip() for verb in reply.headers["Allow"].split(",")} >= {"GET", "PUT", "POST", "DELETE"}


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /admin/v2/tenants HTTP/9.9\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /admin/v2/tenants HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"PUT /admin/v2/tenants/t HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"PUT /admin/v2/tenants/t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /admin/v2/tenants HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64 + b"\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[:40]),
)
def test_bytes_that_are_not_http_are_refused_and_the_next_request_is_answered(
    endpoint: Endpoint, rest: Rest, raw: bytes
) -> None:
    where = urlsplit(endpoint.http_url)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=20) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        try:
            answer = connection.recv(4096)
        except ConnectionResetError:
            answer = b""
    assert answer == b"" or answer.split(b" ")[1].startswith(b"4"), answer
    assert rest.call("GET", "/tenants").status == 200


def test_changes_at_the_same_time_are_all_there_in_the_end_or_were_refused_as_conflicts(
    rest: Rest, namespace: str
) -> None:
    names = [f"k{number}" for number in range(24)]

    def change(name: str) -> int:
        return rest.call("PUT", f"/namespaces/{namespace}/property/{name}/v").status

    with ThreadPoolExecutor(12) as pool:
        statuses = dict(zip(names, pool.map(change, names), strict=True))
    assert set(statuses.values()) <= {204, 409}
    kept = rest.get(f"/namespaces/{namespace}/properties")
    assert kept == {name: "v" for name, status in statuses.items() if status == 204}
    assert kept


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/tenants/{fresh}", {"allowedClusters": ["{cluster}"]}),
        ("PUT", "/namespaces/{tenant}/{fresh}", {}),
        ("PUT", "/persistent/{namespace}/{fresh}", None),
        ("PUT", "/persistent/{namespace}/{fresh}/partitions", 3),
        ("PUT", "/clusters/{fresh}", {"serviceUrl": "http://elsewhere:8080"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_of_many_concurrent_creations_succeeds(
    rest: Rest, namespace: str, method: str, path: str, body: object
) -> None:
    tenant = namespace.partition("/")[0]
    for old, new in {"{fresh}": f"f-{tenant}", "{tenant}": tenant, "{namespace}": namespace}.items():
        path = path.replace(old, new)
    data = json.dumps(body).replace("{cluster}", rest.endpoint.cluster).encode() if body is not None else b""
    with ThreadPoolExecutor(8) as pool:
        statuses = [reply.status for reply in pool.map(lambda _: rest.call(method, path, data), range(8))]
    assert sum(status < 300 for status in statuses) == 1, statuses
    assert all(status < 300 or status == 409 for status in statuses), statuses
