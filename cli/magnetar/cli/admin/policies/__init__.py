"""Commands that set, get and remove policies of namespaces and topics."""
