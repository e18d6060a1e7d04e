"""GET /metrics: the topics' page in pieces, then the metrics of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.broker_view import BrokerView
from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.metrics.page import MetricsPage
from magnetar.common.errors import TooManyRequests
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.process_metrics import CONTENT_TYPE, process_page
from magnetar.common.security.authorization.operations import Operation

_log = get_logger("magnetar.broker.metrics")

SCRAPES_MAX: Final = 4
"""Maximum concurrent scrapes."""

NAMES_MAX: Final = 100
"""Most metrics that a scrape may choose by name."""

_SCRAPE_TIMEOUT_S: Final = 30.0


def routes(broker: BrokerView) -> list[Route]:
    """Builds the route of one broker."""
    handler = _MetricsRoute(MetricsPage(broker), broker.config.cluster_name).get
    return [
        Route(
            object="metrics",
            method="GET",
            path=path,
            handler=handler,
            summary="Metrics of topics, subscriptions and the process, for Prometheus; with `name[]`, "
            "only samples of the broker with these names.",
            query=("name[]:List<String>",),
            answer="text/plain; version=0.0.4",
            operation=Operation.OPEN,
        )
        for path in ("/metrics", "/metrics/")
    ]


class _MetricsRoute:
    def __init__(self, page: MetricsPage, cluster: str) -> None:
        self._page = page
        self._cluster = cluster
        self._scrapes = 0

    async def get(self, call: Call) -> web.StreamResponse:
        request = call.request
        names = request.query.getall("name[]", [])
        if len(names) > NAMES_MAX:
            raise Refused(412, f"name[] may be given {NAMES_MAX} times, not {len(names)}")
        if self._scrapes >= SCRAPES_MAX:
            raise TooManyRequests(f"{SCRAPES_MAX} scrapes are already in progress; retry")
        self._scrapes += 1
        try:
            response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
            async with asyncio.timeout(_SCRAPE_TIMEOUT_S):
                await self._stream(request, response, names)
            return response
        except TimeoutError:
            _log.warning(
                "scrape aborted: the reader is too slow", seconds=_SCRAPE_TIMEOUT_S, peer=request.remote
            )
            if request.transport is not None:
                request.transport.abort()
            return response
        finally:
            self._scrapes -= 1

    async def _stream(self, request: web.Request, response: web.StreamResponse, names: Sequence[str]) -> None:
        await response.prepare(request)
        if request.method == "HEAD":
            return
        for piece in () if names else self._page.render():
            if piece:
                await response.write(piece.encode())
            # A write to a writable socket returns at once: yield to the event loop here.
            await asyncio.sleep(0)
        await response.write(process_page(self._cluster, names))
        await response.write_eof()
