"""The cold tier: offloaded ledgers as Parquet objects, one row per message, readable by brokers, Spark and
others.

`layout`, `columns`, `manifest`, `rows` and `sweep` need no further package. Modules for Parquet
(`arrow_schema`, `part_writer`, `part_reader`) and object stores (`objects`) need `magnetar-ledger[cold]`:
import them only when an offloaded ledger is used.
"""
