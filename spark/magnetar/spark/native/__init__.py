"""Offloaded ledgers read by Spark's own Parquet reader."""
