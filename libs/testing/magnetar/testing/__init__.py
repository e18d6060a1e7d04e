"""Runs a real Magnetar for tests of applications: `with standalone() as broker:`.

pytest fixtures are in `magnetar.testing.plugin`, which pytest loads by itself, the container for
testcontainers is in `magnetar.testing.containers`.
"""

from magnetar.testing.standalone_process import StandaloneProcess, StartFailed, standalone

__all__ = ["StandaloneProcess", "StartFailed", "standalone"]
