"""Subscriptions: connected consumers, delivery by subscription type, and acknowledgements."""
