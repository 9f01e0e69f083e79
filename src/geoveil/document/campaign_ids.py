"""Ids of campaigns: which ones documents and links may name, and how new ones are made."""

from __future__ import annotations

import base64
import re
import unicodedata

from geoveil.randomness import SystemRandomness

NAMED_PATTERN = "[a-z0-9][a-z0-9-]{0,79}"
"""What documents and links may name."""
ID_PATTERN = "^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"
"""What a service gives its campaigns: small letters, digits and hyphens, as in the name of a host."""


def new_id(name: str) -> str:
    """An id for a campaign: its name as far as links can hold it, and six random characters.

    >>> new_id("Zürich — Tram!")[:12]
    'zurich-tram-'
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub("[^a-z0-9]+", "-", plain)[:40].strip("-") or "campaign"
    random = base64.b32encode(SystemRandomness().bytes(5)).decode().lower()
    return f"{slug}-{random[:6]}"
