"""Types of the admin API that brokers and their clients share: names and values, no HTTP."""
