"""Transactions of Apache's Java client on Magnetar and on Apache Pulsar: rates, times and recovery."""
