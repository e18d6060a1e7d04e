"""The log of a transaction coordinator: its records, the state that they build, and its ledgers."""
