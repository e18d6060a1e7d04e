from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any, ClassVar

import pytest
from magnetar.broker.admin.edge.json_types import ENUMS, OBJECTS
from magnetar.broker.admin.edge.routing import COMMON_ERRORS, Parameter, Route
from magnetar.broker.admin.openapi.document import document
from magnetar.broker.admin.openapi.json_schema import SCALARS, declared, schema_of
from magnetar.broker.admin.table import routes
from magnetar.common.security.authorization.operations import Operation
from openapi_spec_validator import validate

from tests.unit.broker.admin.conftest import Serving
from tests.unit.broker.admin.fake_broker import Http


class Nobody:
    """A broker of which only the table is wanted."""

    class config:
        cluster_name = "standalone"

    topics: ClassVar[dict[str, object]] = {}


@pytest.fixture(scope="module")
def table() -> list[Route]:
    return routes(Nobody())  # type: ignore[arg-type]


async def _nobody(call: Any) -> Any:
    raise AssertionError("nobody calls it")


def route(**more: Any) -> Route:
    given: dict[str, Any] = {
        "object": "things",
        "method": "GET",
        "path": "/things",
        "handler": _nobody,
        "operation": Operation.SUPER_USER,
        "summary": "Things.",
    }
    return Route(**{**given, **more})


@pytest.mark.parametrize(
    ("type_name", "schema"),
    [
        ("boolean", {"type": "boolean"}),
        ("Mode", {"$ref": "#/components/schemas/Mode"}),
        ("List<String>", {"type": "array", "items": {"type": "string"}}),
        ("Set<Mode>", {"type": "array", "items": {"$ref": "#/components/schemas/Mode"}}),
        ("Map<double>", {"type": "object", "additionalProperties": SCALARS["double"]}),
        ("Map<String, double>", {"type": "object", "additionalProperties": SCALARS["double"]}),
        (
            "Map<Map<String, boolean>>",
            {
                "type": "object",
                "additionalProperties": {"type": "object", "additionalProperties": {"type": "boolean"}},
            },
        ),
        (
            "Map<String, List<String>>",
            {
                "type": "object",
                "additionalProperties": {"type": "array", "items": {"type": "string"}},
            },
        ),
    ],
)
def test_a_type_is_made_of_others(type_name: str, schema: object) -> None:
    assert schema_of(type_name) == schema


@pytest.mark.parametrize("type_name", ["Nonsense", "List<Nonsense>", "Bag<String>", "string"])
def test_undeclared_type_is_refused(type_name: str) -> None:
    with pytest.raises(LookupError):
        schema_of(type_name)
    with pytest.raises(LookupError):
        document([route(answer=type_name)])


def test_no_type_has_two_meanings_or_a_member_twice() -> None:
    assert not OBJECTS.keys() & ENUMS.keys()
    assert not (OBJECTS.keys() | ENUMS.keys()) & SCALARS.keys()
    for name, members in OBJECTS.items():
        names = [member.partition(":")[0] for member in members.split()]
        assert len(set(names)) == len(names), name
    assert len(declared()) == len(OBJECTS) + len(ENUMS)


def test_parameters_have_the_types_that_the_table_says() -> None:
    query = ("a:boolean=true", "b:int=7", "c:String=latest", "d:long", "e:boolean=false")
    assert route(query=query).parameters == [
        Parameter("a", "boolean", True),
        Parameter("b", "int", 7),
        Parameter("c", "String", "latest"),
        Parameter("d", "long"),
        Parameter("e", "boolean", False),
    ]


@pytest.mark.full
def test_the_document_is_valid(table: list[Route]) -> None:
    validate(json.loads(json.dumps(document(table))))


def test_every_route_is_in_it_with_its_body_answer_and_refusals(table: list[Route]) -> None:
    found = document(table)
    templates = {re.sub(r"{\w+}", "{}", path): path for path in found["paths"]}
    for each in table:
        path = templates[re.sub(r"{\w+}", "{}", each.path)]
        shown = found["paths"][path][each.method.lower()]
        assert shown["tags"] == [each.object]
        assert shown["summary"] == each.summary
        assert ("requestBody" in shown) == bool(each.body)
        statuses = {each.status, *each.also, *each.errors, *COMMON_ERRORS}
        assert {int(status) for status in shown["responses"]} == statuses
        assert ("content" in shown["responses"][str(each.status)]) == bool(each.answer)
        named = re.findall(r"{(\w+)}", path)
        assert [one["name"] for one in shown["parameters"]] == [
            *named,
            *(one.name for one in each.parameters),
        ]


def test_paths_that_differ_in_a_name_alone_are_one_with_all_their_verbs() -> None:
    found = document(
        [
            route(path="/a/{x}/b"),
            route(path="/a/{y}/b", method="PUT"),
            route(path="/a/{y}/c"),
        ]
    )
    assert {path: set(item) for path, item in found["paths"].items()} == {
        "/a/{x}/b": {"get", "put"},
        "/a/{y}/c": {"get"},
    }
    assert found["paths"]["/a/{x}/b"]["put"]["parameters"][0]["name"] == "x"


def test_document_is_served_on_every_request(serving: Serving) -> None:
    async def body(http: Http) -> None:
        expected = json.loads(json.dumps(document(routes(http.broker))))
        assert await http.json("/openapi.json") == (200, expected)
        assert await http.json("/openapi.json") == (200, expected)

    serving(body)


class Outside(HTMLParser):
    """What a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_needs_nothing_but_the_document(serving: Serving) -> None:
    async def body(http: Http) -> None:
        async with http.client.get(f"{http.base}/docs") as response:
            assert (response.status, response.content_type) == (200, "text/html")
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
            text = await response.text()
        assert text == files("magnetar.broker.admin.openapi").joinpath("reference_page.html").read_text(
            "utf-8"
        )
        page = Outside()
        page.feed(text)
        assert set(page.found) == {"openapi.json"}
        assert re.findall(r"https?://|url\(|@import|import ", text) == []
        assert "width=device-width" in text
        assert "innerHTML" not in text

    serving(body)
