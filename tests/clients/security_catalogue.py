"""Catalogue of what clients do with credentials: one row a scenario, in the words of `catalogue.py`.

A program is called as `PROGRAM DIRECTORY TLS_PORT PLAIN_PORT ISSUER PREFIX [SCENARIO ...]` and prints the
same lines as those of the matrix. The service is reached as `localhost`, which its certificate names, and
its TLS port as `127.0.0.2`, too, which the certificate lacks. DIRECTORY holds:

- `ca.pem`, the authority of the service and of clients; `carol.cert.pem` and `carol.key.pem`;
- `alice.token` and `mallory.token` (valid; mallory has no grant), `forged.token` (another key), and
  `supplied.token`, which is replaced every second by one that lives for three seconds;
- `bob.password`; `oauth2.json`, the credentials of a client of the issuer.

Roles alice, bob, carol and that of the issuer's client may produce and consume in `public/default`. The
service has no role for clients without credentials.
"""

from __future__ import annotations

from typing import Final

from tests.clients.catalogue import Scenario

USER: Final = "bob"
AUDIENCE: Final = "urn:magnetar:tests"

SECURITY_SCENARIOS: Final = (
    Scenario("token-tls", "a token over TLS: 10 messages are sent, come back in order, and are acknowledged"),
    Scenario("token-plain", "the same without TLS"),
    Scenario("basic-tls", "the same with a user and a password over TLS"),
    Scenario("certificate", "the same with a client certificate"),
    Scenario("name-right", "the same, and the client checks that the certificate names the host"),
    Scenario(
        "name-wrong",
        "at an address that the certificate lacks, a client that checks names does not connect; one that does"
        " not check exchanges the same 10 messages",
    ),
    Scenario(
        "token-forged",
        "a token of another key is refused: Java has an AuthenticationException; Go and Python try again"
        " until their time is over and do not tell the reason, with Apache Pulsar, too",
    ),
    Scenario("no-credentials", "a client without credentials is refused in the same way"),
    Scenario("no-right", "a role without grants fails with the library's authorization error"),
    Scenario(
        "token-renewed",
        "while 100 messages are sent, 80 ms apart, the tokens of the supplier expire twice: each arrives, in"
        " order, and no send fails",
    ),
    Scenario("oauth2", "client credentials of OAuth2: the same 10 messages with the token of an issuer"),
)

LACKING: Final = {
    "Secured Rust 6.9.1": {
        "certificate": "no client certificates",
        "oauth2": "the client of issuers trusts public authorities alone, without a setting for others",
    },
}
"""Scenarios for which a library has nothing, and why, by program."""
