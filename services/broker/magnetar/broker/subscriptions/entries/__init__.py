"""The entries of one subscription in delivery order: read ahead, redelivered, and due after a delay."""
