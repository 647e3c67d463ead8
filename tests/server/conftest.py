"""Real servers for these tests (`registry_support`)."""

from __future__ import annotations

from registry_support import browser, openid, page, postgres, postgres_url, smtp, store_url

__all__ = ["browser", "openid", "page", "postgres", "postgres_url", "smtp", "store_url"]
