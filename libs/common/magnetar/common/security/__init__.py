"""Security: identities of callers and how they are proved.

Packages that only some settings need are imported where such a setting is used.
"""
