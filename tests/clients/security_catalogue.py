"""Catalogue of what clients do with credentials: one row a scenario, in the words of `catalogue.py`.

A program is called as `PROGRAM DIRECTORY TLS_PORT PLAIN_PORT ISSUER PREFIX [SCENARIO ...]` and prints the same
lines as those of the matrix. The service is reached as `localhost`, which its certificate names, and as
`127.0.0.1`, which the certificate lacks. DIRECTORY holds:

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
    Scenario("name-wrong", "a client that checks names does not connect to an address that is not named"),
    Scenario("token-forged", "a token of another key fails with the library's authentication error"),
    Scenario("no-credentials", "a client without credentials fails with the library's authentication error"),
    Scenario("no-right", "a role without grants fails with the library's authorization error"),
    Scenario(
        "token-renewed",
        "while 100 messages are sent, 80 ms apart, the tokens of the supplier expire twice: each arrives, in"
        " order, and no send fails",
    ),
    Scenario("oauth2", "client credentials of OAuth2: the same 10 messages with the token of an issuer"),
)
