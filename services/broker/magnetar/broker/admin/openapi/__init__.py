"""Descriptions of the admin API made from its routes: OpenAPI, JSON Schema and Markdown."""
