"""Text of docs/clients.md, written from the recorded verdicts (`make docs`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.clients.catalogue import SCENARIOS
from tests.clients.programs import PROGRAMS
from tests.clients.verdicts import (
    APACHE,
    CLUSTER,
    NO_TRANSACTIONS,
    SERVICES,
    STANDALONE,
    Outcome,
    Verdict,
    recorded,
)

_SERVICE_TITLES: Final = {STANDALONE: "Standalone", CLUSTER: "Cluster", APACHE: "Apache Pulsar 4.0.7"}

_OPENING: Final = """\
# Clients

Existing Pulsar clients connect unchanged. This page is what a run of their own libraries, and of Magnetar's
asyncio client, showed on a Magnetar standalone, on a Magnetar cluster (two brokers over three bookies,
entered through discovery), and on Apache Pulsar 4.0.7, where each scenario has to pass, too, but for
[aborts of Go](#scenarios).

```sh
make clients ARGS=--record            # standalone and cluster
make clients ANCHOR=1 ARGS=--record   # Apache Pulsar, fetched by Maven
make docs                             # writes this page from what was recorded
```

[`tests/clients/catalogue.py`](../tests/clients/catalogue.py) says what each scenario does and expects; the
programs are beside it. `make test-full` runs them on Magnetar and fails where a verdict differs from here.

## Libraries

"""

_MATRIX: Final = """
## Scenarios

"yes" is a pass on all three services, "-" a feature that the library does not have; reasons are below.

"""

_TRANSACTIONS: Final = """
Java, Go and Python asyncio have transactions. The Go client names the transaction in the Send command alone,
not in the metadata of the message, where Apache Pulsar 4.0.7 looks for it before a delivery. There, consumers
get what Go aborted; Magnetar takes the transaction from the command. A Go client finds a moved coordinator by
a new connection alone, so the broker closes the connection then.

Python asyncio has PROTOBUF by a schema of the application, as its [interface for
schemas](../libs/client/magnetar/client/schemas/schema.py) allows; the client itself has PROTOBUF_NATIVE.
"""

_SECURED: Final = """
## With credentials

Java 4.0.8, Go 0.19.0, Rust 6.9.1, Node 1.15.0, Python 3.13.0 and Python asyncio pass every scenario of
[`security_catalogue.py`](../tests/clients/security_catalogue.py) on a standalone with TLS, authentication and
authorization: tokens, passwords, client certificates, names that are checked, refusals, a supplier whose
tokens expire, and OAuth2 against a small issuer. `test_clients_with_security.py` fails where one does not,
and asks Apache Pulsar 4.0.7 the same in `make test-nightly`. Rust has no client certificates, and its OAuth2
trusts public authorities alone, so that these two scenarios are left out.

| On both services | Error of a refused credential | Checks names by default | Name checked at an address |
| --- | --- | --- | --- |
| Java | `AuthenticationException` | no | what the address resolves back to |
| Go | "connection error", late | yes | the address |
| Rust | "fatal error when connecting" | yes | the address |
| Node | `ConnectError` | no | the address |
| Python | `Timeout`, late | no | the address |
| Python asyncio | `AuthenticationFailed` | yes | the address |

Late: the library connects again until the time of the operation is over, and logs the service's answer alone.
"""

_LACKS: Final = """
## What libraries lack

"""


def page() -> str:
    """The whole page."""
    verdicts = {service: recorded(service) for service in SERVICES}
    names = [source.name for source in PROGRAMS]
    parts = [
        _OPENING,
        _libraries(verdicts),
        _MATRIX,
        _matrix(verdicts, names),
        _TRANSACTIONS,
        _SECURED,
        _LACKS,
        _lacks(verdicts, names),
    ]
    return "".join(parts)


def _libraries(verdicts: dict[str, list[Verdict]]) -> str:
    rows = [["Client", "Library", *_SERVICE_TITLES.values()]]
    for source in PROGRAMS:
        cells = [
            _summary([one for one in verdicts[service] if one.program == source.name]) for service in SERVICES
        ]
        rows.append([source.name, f"`{source.library}`", *cells])
    return _table(rows)


def _summary(verdicts: list[Verdict]) -> str:
    count = {outcome: sum(one.outcome is outcome for one in verdicts) for outcome in Outcome}
    failed = f", **{count[Outcome.FAIL]} failed**" if count[Outcome.FAIL] else ""
    return (
        f"{count[Outcome.PASS]} of {len(verdicts) - count[Outcome.LACKS]}{failed}" if verdicts else "not run"
    )


def _matrix(verdicts: dict[str, list[Verdict]], names: Sequence[str]) -> str:
    cells = {
        (service, one.program, one.scenario): one.outcome for service in SERVICES for one in verdicts[service]
    }
    alike: dict[tuple[str, ...], list[str]] = {}
    for scenario in SCENARIOS:
        row = []
        for name in names:
            found = {service: cells.get((service, name, scenario.name)) for service in SERVICES}
            row.append(_cell(found))
        alike.setdefault(tuple(row), []).append(scenario.name)
    rows = [[", ".join(scenarios), *row] for row, scenarios in alike.items()]
    return _table([["Scenarios", *names], *rows])


def _cell(found: dict[str, Outcome | None]) -> str:
    outcomes = set(found.values())
    if outcomes == {Outcome.PASS}:
        return "yes"
    if outcomes == {Outcome.LACKS}:
        return "-"
    return ", ".join(
        f"{_SERVICE_TITLES[service]}: {outcome or 'not run'}" for service, outcome in found.items()
    )


def _lacks(verdicts: dict[str, list[Verdict]], names: Sequence[str]) -> str:
    reasons: dict[tuple[str, str], list[str]] = {}
    for name in names:
        for one in verdicts[STANDALONE]:
            if one.program == name and one.outcome is Outcome.LACKS:
                # "in this client" and "in this version of the client" say the same beside the name.
                reason = one.reason.replace(" in this version of the client", "").replace(
                    " in this client", ""
                )
                scenario = "txn-*" if reason == NO_TRANSACTIONS else one.scenario
                lacking = reasons.setdefault((scenario, reason), [])
                if name not in lacking:
                    lacking.append(name)
    rows = [[scenario, ", ".join(lacking), reason] for (scenario, reason), lacking in sorted(reasons.items())]
    return _table([["Scenario", "Libraries", "Reason"], *rows])


def _table(rows: list[list[str]]) -> str:
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
