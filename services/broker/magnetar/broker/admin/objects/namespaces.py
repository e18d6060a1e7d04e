"""Paths and errors shared by the routes of namespaces."""

from __future__ import annotations

from typing import Final

NAMESPACE_PATH: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
NAMESPACE_ERRORS: Final = {404: "Namespace does not exist", 412: "invalid name"}
