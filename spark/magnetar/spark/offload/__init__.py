"""The offload job: closed ledgers out of bookies, as Parquet into an object store, verified and committed.

`python -m magnetar.spark.offload run` (or `magnetar offload run`) is the driver. `job` processes pending
ledgers, `ledger_offload` takes one ledger through its two phases, `part_task` and `verify_task` are the Spark
tasks. `sweep` deletes unreferenced objects and `status` shows the state of every ledger; neither starts
Spark.
"""
