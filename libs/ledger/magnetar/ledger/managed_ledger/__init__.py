"""The managed ledger: the ledgers of one topic, its cursors and its entry cache."""
