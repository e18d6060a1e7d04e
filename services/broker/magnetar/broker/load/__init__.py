"""How brokers share the load: what each reports, who is given a bundle, when one is moved or split."""
