"""Packages that all Magnetar services share: names, errors, configuration, wire codec, metadata store."""
