"""Rules of the schema registry: valid definitions, equal schemas, compatible schemas. Pure functions."""
