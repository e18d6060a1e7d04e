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


def test_a_row_says_what_a_call_takes_answers_and_refuses() -> None:
    (row,) = rows(chapter([route("things", body="int", path="/things/{a}")]))
    assert row == (
        "| `GET /things/{a}` | Its size. | `int`, `?applied=false`, `?since` long, `?mode=ALL` "
        "| 200 `Map<String, long>`; 204 it is not set | 404 Topic not found |"
    )


def test_routes_common_to_both_domains_share_a_row() -> None:
    same = chapter([route("persistent"), route("non-persistent")])
    assert [row.split(" | ")[0] for row in rows(same)] == ["| `GET /admin/v2/{domain}/{topic}/size`"]
    assert "### topics\n" in same
    other = chapter([route("persistent"), route("non-persistent", errors={405: "not for these"})])
    assert len(rows(other)) == 2


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
        "| GET 200 `Map<String, long>`<br>POST 200 `Map<String, long>` | 404 Topic not found |"
    )


def test_a_refusal_of_many_calls_stands_above_the_tables() -> None:
    text = chapter([route("things", path=f"/things/{number}") for number in range(20)])
    assert text.count("404 Topic not found") == 1
