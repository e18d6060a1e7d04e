"""Every call that the served OpenAPI document allows, with what it allows and with what it does not.

Schemathesis makes the calls from the document alone; names in paths are at times those of things that exist.
Whatever is sent, no answer is an error of the broker, and each is one that the document has for the call.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from tests.integration.harness import Endpoint
from tests.integration.rest import Rest

NAMES = {
    "tenant": ["bad"],
    "namespace": ["ns"],
    "topic": ["a", "p", "p-partition-0", "é"],
    "subscription": ["s"],
    "subName": ["s"],
    "mostSigBits": ["0"],
    "coordinatorId": ["0"],
    "cluster": ["standalone", "c2"],
    "bundle": ["0x00000000_0x40000000", "0x00000000_0xffffffff"],
    "bookie": ["b:1"],
    "configName": ["maxTopicsPerNamespace"],
}
"""Names of what there is, by that of the parameter."""

SERVER_SETTINGS = {"transactionCoordinatorEnabled": "true"}

LEFT_OUT = {"/admin/v2/brokers/shutdown"}
"""It does what it says."""

TWICE = {"non-persistent"}
"""Objects whose calls are nearly all those of another one."""

Operation = Any  # schemathesis has no public name for it


def operations(endpoint: Endpoint) -> list[Operation]:
    document = requests.get(f"{endpoint.http_url}/openapi.json", timeout=20).json()
    found = []
    for each in schemathesis.openapi.from_dict(document).get_all_operations():
        assert isinstance(each, Ok), each.err()
        found.append(each.ok())
    return [operation for operation in found if operation.path not in LEFT_OUT]


def modes(operation: Operation) -> list[GenerationMode]:
    """What is wrong can only be made where not every text is right."""
    raw = operation.definition.raw
    typed = [one for one in raw["parameters"] if one["schema"].get("type") != "string"]
    if "requestBody" in raw or typed:
        return [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
    return [GenerationMode.POSITIVE]


class Checker:
    """Sends cases and judges the answers."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        rest: Rest | None = None,
        credentials: Mapping[str, str] | None = None,
        secrets: Sequence[bytes] = (),
    ) -> None:
        """`rest` makes what NAMES names; the cases have these credentials. No answer may have a secret."""
        self.endpoint = endpoint
        self.rest = rest or Rest(endpoint)
        self.session = requests.Session()
        self.session.headers.update(credentials or {})
        self.secrets = secrets
        self.statuses: Counter[int] = Counter()
        self.validators: dict[str, Any] = {}
        self.make()

    def make(self) -> None:
        """What NAMES names, again if it is gone."""
        tenant = {"adminRoles": ["admin"], "allowedClusters": [self.endpoint.cluster]}
        self.rest.call("PUT", "/tenants/bad", tenant)
        self.rest.call("PUT", "/namespaces/bad/ns")
        self.rest.call("PUT", "/persistent/bad/ns/a/subscription/s", "earliest")
        self.rest.call("PUT", "/persistent/bad/ns/p/partitions", 2)

    def check(self, case: Any, names: dict[str, str]) -> None:
        case.path_parameters = {**(case.path_parameters or {}), **names}
        response = case.call(
            base_url=self.endpoint.http_url, session=self.session, allow_redirects=False, timeout=20
        )
        self.statuses[response.status_code] += 1
        declared = case.operation.definition.raw["responses"].get(str(response.status_code))
        request = response.request
        what = (
            f"{request.method} {request.url!r:.300} {request.body!r:.300} "
            f"gave {response.status_code} {response.content!r:.300}"
        )
        shown = [secret for secret in self.secrets if secret in response.content]
        assert not shown, f"{shown} in the answer: {what}"
        assert declared is not None, f"a status that the document does not have: {what}"
        # What may be refused for now is said of the call itself.
        assert response.status_code < 500 or "$ref" not in declared, f"an error of the broker: {what}"
        if response.status_code >= 400:
            assert isinstance(response.json()["reason"], str), what
        elif response.content and "application/json" in declared.get("content", {}):
            for error in self.validator(case.operation, declared).iter_errors(response.json()):
                raise AssertionError(f"{error.message} at {error.instance_path}: {what}")

    def validator(self, operation: Operation, declared: dict[str, Any]) -> Any:
        """What holds for the JSON of an answer."""
        schema = declared["content"]["application/json"]["schema"]
        key = json.dumps(schema)
        if key not in self.validators:
            components = operation.schema.raw_schema["components"]
            self.validators[key] = jsonschema_rs.validator_for({**schema, "components": components})
        return self.validators[key]


def drive(checker: Checker, operation: Operation, examples: int) -> None:
    """Call one operation in each mode that it has."""
    named = re.findall(r"{(\w+)}", operation.path)
    known = {name: st.sampled_from(NAMES[name]) for name in named if name in NAMES}
    # Three of four calls are about what there is, as far as names go.
    names_of_some = st.one_of(st.just({}), *[st.fixed_dictionaries(known)] * 3)
    for mode in modes(operation):

        @seed(zlib.crc32(f"{operation.label} {mode}".encode()))
        @settings(
            max_examples=examples,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode), names_of_some)
        def called(case: Any, names: dict[str, str]) -> None:
            checker.check(case, names)

        called()


@pytest.fixture
def checker(endpoint: Endpoint) -> Iterator[Checker]:
    made = Checker(endpoint)
    yield made
    made.session.close()


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("our_contract")
def test_no_call_that_the_document_describes_is_an_error_of_the_broker(
    endpoint: Endpoint, checker: Checker
) -> None:
    for number, operation in enumerate(operations(endpoint)):
        if number % 5 == 0:
            checker.make()
        if operation.definition.raw["tags"][0] not in TWICE:
            drive(checker, operation, 2)
    assert {200, 204, 400, 404, 412} <= checker.statuses.keys()


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("our_contract")
def test_no_call_is_however_often_one_tries(endpoint: Endpoint, checker: Checker) -> None:
    for number, operation in enumerate(operations(endpoint)):
        if number % 5 == 0:
            checker.make()
        drive(checker, operation, 8)
    assert {200, 204, 400, 404, 405, 412} <= checker.statuses.keys()
