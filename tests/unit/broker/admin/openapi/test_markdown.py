from __future__ import annotations

from typing import Any

from magnetar.broker.admin.edge.routing import COMMON_ERRORS, Route
from magnetar.broker.admin.openapi.markdown import chapter
from magnetar.common.security.authorization.operations import Operation


async def _nobody(call: Any) -> Any:
    raise AssertionError("nobody calls it")


def route(domain: str, **more: Any) -> Route:
    given: dict[str, Any] = {
        "object": domain,
        "method": "GET",
        "path": f"/admin/v2/{domain}/{{topic}}/size",
        "handler": _nobody,
        "operation": Operation.SUPER_USER,
        "summary": "Its size.",
        "answer": "Map<String, long>",
        "errors": {404: "Topic not found"},
        "also": {204: "it is not set"},
        "query": ("applied:boolean=false", "since:long", "mode:Mode=ALL"),
    }
    return Route(**{**given, **more})


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| `")]


def test_a_row_says_what_a_call_takes_and_answers() -> None:
    (row,) = rows(chapter([route("things", body="int", path="/things/{a}")]))
    assert row == (
        "| `GET /things/{a}` | Its size. | `int`, `?applied=false`, `?since` long, `?mode=ALL` "
        "| `Map<String, long>`; 204 it is not set |"
    )


def test_routes_common_to_both_domains_share_a_row() -> None:
    same = chapter([route("persistent"), route("non-persistent")])
    assert [row.split(" | ")[0] for row in rows(same)] == ["| `GET /admin/v2/{domain}/{topic}/size`"]
    assert "### topics\n" in same
    other = chapter([route("persistent"), route("non-persistent", answer="long")])
    assert len(rows(other)) == 2


def test_refusals_of_an_object_stand_once_below_its_table_by_status() -> None:
    text = chapter(
        [
            route("things", path="/things/a", errors={404: "Thing not found.; no such part"}),
            route("things", path="/things/b", errors={404: "Thing not found", 409: "in use"}),
            route("others", path="/others", errors={}),
        ]
    )
    assert text.count("Refused with: **404** Thing not found; no such part. **409** in use.") == 1
    assert text.count("Refused with") == 1


def test_statuses_common_to_all_routes_are_stated_once() -> None:
    text = chapter([route("things")])
    for status, reason in COMMON_ERRORS.items():
        assert text.count(f"| {status} | {reason} |") == 1


def test_a_stroke_in_a_text_does_not_end_its_cell() -> None:
    (row,) = rows(chapter([route("things", summary="This | that.")]))
    assert "This \\| that." in row


def test_methods_of_one_path_share_a_row() -> None:
    calls = [
        route("things", path="/things", method=method, summary=f"{verb} a thing.", query=(), also={})
        for method, verb in (("GET", "Get"), ("POST", "Set"))
    ]
    (row,) = rows(chapter(calls))
    assert row == (
        "| `GET /things`<br>`POST` | Get, set a thing. |  "
        "| GET `Map<String, long>`<br>POST `Map<String, long>` |"
    )


def test_a_refusal_of_many_calls_stands_above_the_tables() -> None:
    text = chapter([route("things", path=f"/things/{number}") for number in range(20)])
    assert text.count("404 Topic not found") == 1


def test_policies_that_differ_only_in_the_last_word_of_their_path_share_a_row() -> None:
    calls = [
        route(
            "things",
            path=f"/things/{name}",
            method=method,
            summary=f"{verb} {name} of a namespace.",
            query=(),
            also={},
        )
        for name in ("ttl", "size")
        for method, verb in (("GET", "Get"), ("POST", "Set"))
    ]
    (row,) = rows(chapter(calls))
    assert row == (
        "| `GET /things/ttl`, `size`<br>`POST` |  |  | GET `Map<String, long>`<br>POST `Map<String, long>` |"
    )
