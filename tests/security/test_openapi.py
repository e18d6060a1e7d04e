"""Every call that the OpenAPI document allows, with the credentials of a tenant admin and of a super user.

tests/integration/test_admin_openapi.py makes them without security. Here, too, no answer is an error of the
broker, and none shows a secret.
"""

from __future__ import annotations

import base64

import pytest

from tests.integration.rest import Rest
from tests.integration.test_admin_openapi import TWICE, Checker, drive, operations
from tests.security.conftest import SECRET, SUPER_USER, Secured, bearer

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


def secrets_of(role: str) -> list[bytes]:
    """Texts that no answer may have: keys, hashes, secret parameters, and the caller's own token.

    Paths of files with secrets are shown to super users.
    """
    return [
        base64.b64encode(SECRET),
        b"$apr1$",
        b"PRIVATE KEY",
        b'tlsKeyFile\\"',  # in the parameters of our own client, which are JSON in a text
        bearer(role)["Authorization"].encode(),
    ]


def test_no_call_with_credentials_is_an_error_of_the_broker_or_shows_a_secret(expendable: Secured) -> None:
    endpoint = expendable.server.endpoint
    known = [each for each in operations(endpoint) if each.definition.raw["tags"][0] not in TWICE]
    for role in ("admin", SUPER_USER):
        checker = Checker(
            endpoint,
            rest=Rest(endpoint, bearer(SUPER_USER)),
            credentials=bearer(role),
            secrets=secrets_of(role),
        )
        for number, operation in enumerate(known):
            if number % 5 == 0:
                checker.make()
            drive(checker, operation, 1)
        checker.session.close()
        print(f"{checker.statuses.total()} calls as {role}: {dict(checker.statuses)}")
        assert {200, 204, 400, 404} <= checker.statuses.keys()
        refused = checker.statuses[401] + checker.statuses[403]
        assert refused == 0 if role == SUPER_USER else refused > 0
