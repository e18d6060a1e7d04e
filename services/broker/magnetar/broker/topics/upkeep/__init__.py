"""Periodic upkeep of loaded topics: expiry of messages and subscriptions, deletion of inactive topics."""
