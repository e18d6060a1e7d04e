"""Schemas of messages: values of Python to payloads and back, with the definition that a topic keeps.

Each module is imported by name, for example `from magnetar.client.schemas.json import Json`; importing the
client imports none of them.
"""
