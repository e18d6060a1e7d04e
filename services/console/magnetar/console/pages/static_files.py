"""Scripts and styles: a few small files, kept in memory."""

from __future__ import annotations

from functools import cache
from pathlib import PurePosixPath
from typing import Final

from aiohttp import web
from magnetar.console.rendering import STATIC

_TYPES: Final = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain",
}


def serve(name: str) -> web.Response:
    """Returns the answer with a file; the links have a digest, so that browsers may keep it for ever."""
    content = _files().get(name)
    if content is None:
        return web.Response(status=404, text="file not found")
    response = web.Response(body=content, content_type=_TYPES[PurePosixPath(name).suffix], charset="utf-8")
    response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    response.enable_compression()
    return response


@cache
def _files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in STATIC.iterdir() if path.suffix in _TYPES}
