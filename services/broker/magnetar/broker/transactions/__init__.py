"""Transactions: coordinators, and the ends of transactions in topics of this broker."""
