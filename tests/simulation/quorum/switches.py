"""Trouble that the simulation may plan, by what the code withstands."""

from __future__ import annotations

from typing import Final

ADDRESSES_ARE_REUSED: Final = True
"""A bookie comes back at the address of another one that died: bookies refuse what is meant for others."""
