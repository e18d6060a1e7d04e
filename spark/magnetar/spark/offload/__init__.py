"""The offload job: closed ledgers out of bookies, as Parquet into an object store, verified and committed.

`python -m magnetar.spark.offload run` (or `magnetar offload run`) is the driver; `job` goes through the
ledgers that wait, `ledger_offload` takes one through its two phases, `part_task` and `verify_task` are what
Spark's tasks do. `sweep` deletes what nobody needs any more, `status` tells how far every ledger is; neither
of them starts Spark.
"""
