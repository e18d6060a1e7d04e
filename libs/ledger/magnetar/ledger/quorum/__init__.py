"""The quorum client: ledgers replicated over bookies (storage contract, section 3)."""
