"""What a server counted, read from its metrics page as a monitoring system does."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.integration.harness import Endpoint


def counter(endpoint: Endpoint, name: str, **labels: str) -> float:
    """The value of a counter, 0 while nothing was counted; that of several is their sum."""
    with urllib.request.urlopen(f"{endpoint.http_url}/metrics", timeout=10) as response:
        page = response.read().decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
