"""Magnetar for Spark: topics as tables and streams, cold ledgers as Parquet, jobs on both."""
