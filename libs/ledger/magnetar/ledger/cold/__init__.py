"""The cold tier: ledgers as Parquet objects, one row a message, which brokers, Spark and others read.

`layout`, `columns`, `manifest`, `rows` and `sweep` need no package beside this distribution's own. What
touches Parquet (`arrow_schema`, `part_writer`, `part_reader`) and object stores (`objects`) needs
`magnetar-ledger[cold]`: import it where an offloaded ledger is at hand, not before.
"""
