"""Common parts of benchmarks of offloaded ledgers: real text, a server, the job, questions to two engines."""

import magnetar.spark  # noqa: F401 - before gRPC: what it sets for that makes starting Java safe
