"""Cluster checks of `magnetar doctor`: brokers, bookies and etcd, as reached from this host."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import quote, urlsplit

from magnetar.cli.doctor.findings import Finding, graded
from magnetar.cli.doctor.probes import (
    CERTIFICATE,
    HEALTH_TIMEOUT_S,
    HttpAnswer,
    NotPermitted,
    Probes,
    Unreachable,
)
from magnetar.cli.quantity_text import count_text, ms_text, size_text
from magnetar.common.cluster.bookie_states import BookieState
from magnetar.common.errors import ConfigError
from magnetar.common.metadata.open_store import etcd_endpoints, etcd_tls

SKEW_WARN_S: Final = 2.0
SKEW_FAIL_S: Final = 10.0
_HEALTH: Final = "/admin/v2/brokers/health"
_TRUST_NEXT: Final = (
    "name its authority with --tls-trust-cert-path, or use a host that the certificate names, as clients must"
)
_CLOCK_NEXT: Final = (
    "run NTP on both hosts (chronyc tracking): tokens, TTL and delayed messages go by the clock"
)


def broker_findings(
    probes: Probes,
    admin_url: str,
    service_url: str,
    *,
    required: bool,
    probe_topic: str,
    has_metadata: bool,
) -> Iterator[Finding]:
    """Findings for the broker at `admin_url` and its peers. If not `required`, a missing broker is no
    failure. `probe_topic`: where a message is published; empty: none. `has_metadata`: the states of bookies
    are read elsewhere.
    """
    base = admin_url.rstrip("/")
    if not base.startswith(("http://", "https://")):
        what_next = "write --admin-url http://HOST:PORT"
        yield Finding("broker", "failure", f"invalid HTTP URL {admin_url!r}", what_next)
        return
    try:
        answer = probes.http_get(f"{base}{_HEALTH}", HEALTH_TIMEOUT_S, is_broker=True)
    except Unreachable as error:
        if required:
            what_next = "start the broker, open the port in the firewall, or name another with --admin-url"
            what_next = _next(error, what_next)
            yield Finding(f"broker {base}", "failure", str(error), what_next)
        else:
            yield Finding(f"broker {base}", "skipped", "no broker listens there; set --admin-url")
        return
    if answer.url:
        broker = urlsplit(answer.url).netloc
        yield Finding(f"discovery {base}", "ok", f"redirects to {broker}")
    else:
        yield _health(f"broker {base}", answer, probes.access.credentials.method)
        yield from _clock(f"clock of {base}", answer)
    is_reachable = True
    for finding in _service(probes, service_url):
        is_reachable = is_reachable and finding.state != "failure"
        yield finding
    is_carried = False
    if probe_topic and is_reachable:
        is_carried, finding = _probe_message(probes, service_url, probe_topic)
        yield finding
    yield from _others(probes, base, is_carried=is_carried)
    yield from _leader(probes, base)
    if not has_metadata:
        yield from _bookies(probes, base, is_carried=is_carried)


def _next(error: Unreachable, otherwise: str) -> str:
    """Return the remedy of an unreachable server."""
    return _TRUST_NEXT if CERTIFICATE in str(error) else otherwise


def _health(check: str, answer: HttpAnswer, method: str) -> Finding:
    """`method`: that of the credentials that were sent; empty without any."""
    if (answer.status == 401 or answer.status == 403) and method:
        found = f"refuses these credentials for its health check (HTTP {answer.status}): {_reason(answer)}"
        return Finding(check, "warning", found, "use the credentials of a super user")
    if answer.status == 401 or answer.status == 403:
        return Finding(check, "ok", f"answers, and requires authentication (HTTP {answer.status})")
    if answer.status != 200:
        return Finding(check, "failure", f"HTTP {answer.status} {_reason(answer)}", "see the broker's log")
    return graded(
        check,
        answer.seconds,
        0.5,
        3.0,
        f"stored a message and read it back, in {ms_text(answer.seconds)}",
        "it is busy or its storage is slow: magnetar admin broker-stats load-report",
    )


def _reason(answer: HttpAnswer) -> str:
    """Return why the broker is not healthy, with the broker's reason if it gives one."""
    text = answer.body.decode(errors="replace").strip()
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    return str(said["reason"] if isinstance(said, dict) and "reason" in said else text)[:400]


def _clock(check: str, answer: HttpAnswer) -> Iterator[Finding]:
    """Compare clocks by the Date header, which has whole seconds: assume the middle of that second."""
    try:
        theirs = parsedate_to_datetime(answer.headers["date"]).timestamp() + 0.5
    except (KeyError, ValueError, TypeError):
        return
    apart = theirs - answer.at_s
    direction = "ahead of" if apart > 0 else "behind"
    text = "agrees within a second" if abs(apart) < 1.5 else f"{abs(apart):.0f} s {direction} this host"
    yield graded(check, abs(apart), SKEW_WARN_S, SKEW_FAIL_S, text, _CLOCK_NEXT)


def _service(probes: Probes, service_url: str) -> Iterator[Finding]:
    try:
        parts = urlsplit(service_url.split(",")[0])
        tls = parts.scheme == "pulsar+ssl"
        host, port = parts.hostname or "", parts.port or (6651 if tls else 6650)
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("pulsar", "pulsar+ssl"):
        what_next = "write --url pulsar://HOST:PORT or pulsar+ssl://HOST:PORT"
        yield Finding("service", "failure", f"invalid service URL {service_url!r}", what_next)
        return
    check = f"service {host}:{port}"
    try:
        took = probes.connect(host, port, tls=tls)
    except Unreachable as error:
        what_next = "open the port in the firewall, check brokerServicePort, or name another with --url"
        yield Finding(check, "failure", str(error), _next(error, what_next))
        return
    yield graded(
        check,
        took,
        0.1,
        1.0,
        f"reachable, in {ms_text(took)}",
        "check the network between this host and the broker: it is slow",
    )
    method = probes.access.credentials.method
    if not method:
        return
    check = f"credentials at {host}:{port}"
    try:
        probes.authenticate(host, port, tls=tls)
    except Unreachable as error:
        what_next = "check the credentials, and authenticationProviders of the broker; its log has the reason"
        yield Finding(check, "failure", str(error), what_next)
    else:
        yield Finding(check, "ok", f"accepted, by method {method}")


def _probe_message(probes: Probes, service_url: str, topic: str) -> tuple[bool, Finding]:
    """Publish a message and read it back; return whether the service carries connections, and the finding."""
    check = f"message through {topic}"
    try:
        published = probes.publish_and_read(service_url, topic)
    except NotPermitted as error:
        return False, Finding(check, "skipped", f"{error}; another topic: --probe-topic")
    except Unreachable as error:
        what_next = (
            "see the broker's log for the reason; `magnetar admin bookies list` shows which bookies are up"
        )
        return False, Finding(check, "failure", str(error), what_next)
    return published.is_carried, graded(
        check,
        published.seconds,
        0.5,
        3.0,
        f"published and read back, in {ms_text(published.seconds)}",
        "brokers or their storage are slow: magnetar admin broker-stats load-report",
    )


def _others(probes: Probes, base: str, *, is_carried: bool) -> Iterator[Finding]:
    """Check the cluster's active brokers, each from this host. `is_carried`: clients need not reach them."""
    names: list[Any] = _json(probes, f"{base}/admin/v2/clusters") or []
    scheme = urlsplit(base).scheme
    for cluster in names:
        if cluster == "global":
            continue
        for broker in _json(probes, f"{base}/admin/v2/brokers/{quote(str(cluster), safe='')}") or []:
            if f"{scheme}://{broker}" == base:
                continue
            try:
                answer, method = _health_of(probes, scheme, str(broker))
            except Unreachable as error:
                if is_carried:
                    found = f"not reachable from this host ({error}); clients reach it through discovery"
                    yield Finding(f"broker {broker}", "skipped", found)
                    continue
                what_next = "clients are redirected there: its advertisedAddress must be reachable from them"
                yield Finding(f"broker {broker}", "failure", str(error), what_next)
                continue
            yield _health(f"broker {broker}", answer, method)
            yield from _clock(f"clock of {broker}", answer)


def _health_of(probes: Probes, scheme: str, broker: str) -> tuple[HttpAnswer, str]:
    """Return a broker's health, and the method of the credentials sent to it. Raises Unreachable.

    Ids of brokers have the plain port where there is one: it is asked without credentials if ours go by TLS.
    """
    method = probes.access.credentials.method
    try:
        return probes.http_get(f"{scheme}://{broker}{_HEALTH}", HEALTH_TIMEOUT_S, is_broker=True), method
    except Unreachable as error:
        if scheme == "http" or CERTIFICATE in str(error):
            raise
    return probes.http_get(f"http://{broker}{_HEALTH}", HEALTH_TIMEOUT_S), ""


def _leader(probes: Probes, base: str) -> Iterator[Finding]:
    """Check for a leader: without one, bundles are not rebalanced and deleted topics not cleaned up."""
    url = f"{base}/admin/v2/brokers/leaderBroker"
    found = _json(probes, url)
    if isinstance(found, dict):
        yield Finding("leader of brokers", "ok", str(found.get("brokerId") or found.get("serviceUrl")))
        return
    try:
        missing = probes.http_get(url, is_broker=True).status == 404
    except Unreachable:
        return
    if missing:
        what_next = "wait for an election; if there is none, check that brokers reach etcd"
        yield Finding("leader of brokers", "warning", "no leader is elected", what_next)


def _bookies(probes: Probes, base: str, *, is_carried: bool) -> Iterator[Finding]:
    """Check the bookies whose ids are addresses, where metadata is not asked for their states."""
    found = _json(probes, f"{base}/admin/v2/bookies/all")
    listed = found.get("bookies") if isinstance(found, dict) else None
    unknown = 0
    for bookie in listed or []:
        name = str(bookie.get("bookieId") if isinstance(bookie, dict) else bookie)
        host, _, port = name.rpartition(":")
        if is_carried or not host or not port.isdigit():
            unknown += 1
            continue
        try:
            took = probes.connect(host, int(port))
        except Unreachable as error:
            what_next = f"magnetar explain bookie {name}; start it again or decommission it"
            yield Finding(f"bookie {name}", "failure", str(error), what_next)
        else:
            yield Finding(f"bookie {name}", "ok", f"reachable, in {ms_text(took)}")
    if unknown:
        found = f"{count_text(unknown, 'bookie')} known; --metadata and --cluster read their states"
        yield Finding("bookies", "skipped", found)


def bookie_findings(probes: Probes, metadata_url: str, cluster: str) -> Iterator[Finding]:
    """Findings for the state of each bookie in metadata."""
    try:
        bookies = probes.bookies(metadata_url, cluster)
    except Unreachable as error:
        what_next = "check the members of etcd, and the credentials for it (--metadata-user)"
        yield Finding("bookies", "failure", f"metadata does not answer: {error}", what_next)
        return
    if not bookies:
        what_next = "name the cluster with --cluster (clusterName of its brokers)"
        yield Finding("bookies", "warning", f"cluster {cluster!r} has none in metadata", what_next)
    for bookie in bookies:
        yield _bookie_state(bookie)


def _bookie_state(bookie: BookieState) -> Finding:
    name, registration = bookie.bookie_id, bookie.registration
    check = f"bookie {name}"
    at = f", at {registration.address}" if registration is not None else ""
    if bookie.state == "down":
        what_next = (
            f"`magnetar explain bookie {name}`; start it, or run `magnetar admin bookies decommission {name}`"
        )
        return Finding(check, "failure", "down: it has data, and is not registered", what_next)
    if registration is None:
        return Finding(check, "warning", f"{bookie.state}, and not registered", "start it until it is empty")
    if bookie.state == "read-only":
        free = size_text(registration.free_bytes)
        what_next = f"free space on its disk, or add a bookie: `magnetar explain bookie {name}`"
        return Finding(check, "warning", f"read-only{at}, {free} free", what_next)
    return Finding(check, "ok", f"{bookie.state}{at}, {size_text(registration.free_bytes)} free")


def etcd_findings(probes: Probes, metadata_url: str) -> Iterator[Finding]:
    """Findings for each etcd member in the URL."""
    try:
        if not metadata_url.startswith("etcd:"):
            raise ConfigError(f"{metadata_url!r} does not begin with etcd:")
        members = etcd_endpoints(metadata_url)
    except ConfigError as error:
        yield Finding("etcd", "failure", str(error), "write --metadata etcd:HOST:PORT,HOST:PORT")
        return
    down = 0
    for member in members:
        check = f"etcd {member}"
        if etcd_tls(metadata_url):
            # Its health page wants a certificate; whether it serves shows in the checks that read metadata.
            finding = _reachable(probes, check, member)
            down += finding.state == "failure"
            yield finding
            continue
        try:
            answer = probes.http_get(f"http://{member}/health")
        except Unreachable as error:
            down += 1
            yield Finding(check, "failure", str(error), "start it, or open the port in the firewall")
            continue
        if answer.status != 200 or b'"true"' not in answer.body:
            text = answer.body.decode(errors="replace").strip()[:200]
            what_next = "run etcdctl endpoint status --cluster -w table to list the members"
            yield Finding(check, "failure", f"not healthy: {text}", what_next)
            continue
        what_next = "brokers and bookies keep their sessions there: move it closer, or give it its own disk"
        text = f"healthy, reads in {ms_text(answer.seconds)}"
        yield graded(check, answer.seconds, 0.05, 0.5, text, what_next)
        yield from _clock(f"clock of etcd {member}", answer)
        yield from _etcd_disk(probes, member)
    if len(members) > 1 and 0 < down * 2 >= len(members):
        what_next = "restart the members: until then no broker can take over a topic"
        yield Finding("etcd quorum", "failure", f"{down} of {len(members)} members do not answer", what_next)


def _reachable(probes: Probes, check: str, member: str) -> Finding:
    host, _, port = member.rpartition(":")
    try:
        took = probes.connect(host.strip("[]"), int(port))
    except Unreachable as error:
        return Finding(check, "failure", str(error), "start it, or open the port in the firewall")
    return Finding(check, "ok", f"reachable, in {ms_text(took)}")


def doubt_findings(probes: Probes, metadata_url: str, cluster: str) -> Iterator[Finding]:
    """Findings for bookies whose disk was reset to an older state, or lost files, until their entries are
    compared.
    """
    try:
        doubts = probes.doubts(metadata_url, cluster)
    except Unreachable:
        return  # Reported by the members' own findings.
    for bookie_id, reason in sorted(doubts.items()):
        what_next = (
            "leave it running: it copies missing entries from other bookies. Find out why the disk "
            "changed; see "
            "'Snapshots of bookie disks' in docs/operations.md"
        )
        yield Finding(f"data of bookie {bookie_id}", "warning", f"may be missing: {reason}", what_next)


def _etcd_disk(probes: Probes, member: str) -> Iterator[Finding]:
    """Check an etcd member's log sync latency, by its own metrics since it started."""
    try:
        page = probes.http_get(f"http://{member}/metrics").body.decode(errors="replace")
    except Unreachable:
        return
    buckets = [
        (float(bound), float(count))
        for bound, count in re.findall(
            r'^etcd_disk_wal_fsync_duration_seconds_bucket\{le="([^"]+)"\} (\S+)$', page, re.MULTILINE
        )
    ]
    if not buckets or not buckets[-1][1]:
        return
    high = next((bound for bound, count in buckets if count >= 0.99 * buckets[-1][1]), float("inf"))
    text = f"99 % of syncs within {ms_text(high)}" if high != float("inf") else "syncs take seconds"
    what_next = "give etcd its own SSD: slow syncs cause new elections"
    yield graded(f"disk of etcd {member}", high, 0.033, 0.5, text, what_next)


def _json(probes: Probes, url: str) -> Any:
    """Return a broker's response; None without one, and then its check is skipped."""
    try:
        answer = probes.http_get(url, is_broker=True)
        return json.loads(answer.body) if answer.status == 200 else None
    except (Unreachable, ValueError):
        return None
