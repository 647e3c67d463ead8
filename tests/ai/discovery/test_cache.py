"""The cache: HTTP's lifetimes within bounds, and no more documents than it has room for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onym.ai.settings import CacheEntry, MemoryCache, get_cache_lifetime
from onym.net.messages import Headers
from support import as_subtests

DATE = ("Date", "Sun, 22 Nov 2026 00:00:00 GMT")


@as_subtests(
    ("fields", "seconds"),
    [
        ([], 600.0),
        ([("Cache-Control", "max-age=3600")], 3600.0),
        ([("cache-control", 'Public, MAX-AGE="3600"')], 3600.0),
        ([("Cache-Control", "max-age=3600"), ("Age", "600")], 3000.0),
        ([("Cache-Control", "max-age=3600"), ("Cache-Control", "max-age=120")], 120.0),
        # the bounds of 3.2
        ([("Cache-Control", "max-age=0")], 60.0),
        ([("Cache-Control", "max-age=1")], 60.0),
        ([("Cache-Control", "max-age=3600"), ("Age", "99999")], 60.0),
        ([("Cache-Control", "max-age=999999999")], 86400.0),
        ([("Cache-Control", "max-age=99999999999999999999")], 60.0),
        ([("Cache-Control", "max-age=-5")], 60.0),
        ([("Cache-Control", "max-age")], 60.0),
        ([("Cache-Control", "no-cache")], 0.0),
        ([("Cache-Control", "no-store, max-age=3600")], None),
        ([DATE, ("Expires", "Sun, 22 Nov 2026 01:00:00 GMT")], 3600.0),
        ([DATE, ("Expires", "0")], 60.0),
        ([DATE, ("Expires", "Sun, 22 Nov 2026 01:00:00 -0000")], 60.0),
        ([("Expires", "Sun, 22 Nov 2026 01:00:00 GMT")], 600.0),
        ([DATE, ("Expires", "Sun, 22 Nov 2026 01:00:00 GMT"), ("Cache-Control", "max-age=100")], 100.0),
        ([("Cache-Control", "max-age=3600"), ("Age", "x")], 3600.0),
    ],
)
def test_a_lifetime_is_https_within_our_bounds(fields: list[tuple[str, str]], seconds: float | None) -> None:
    assert get_cache_lifetime(Headers(fields)) == seconds


@given(st.lists(st.tuples(st.sampled_from(["cache-control", "age", "expires", "date"]), st.text())))
def test_no_header_makes_it_longer_than_a_day(fields: list[tuple[str, str]]) -> None:
    found = get_cache_lifetime(Headers(fields))
    assert found is None or found == 0 or 60 <= found <= 86400


def test_the_one_used_longest_ago_makes_room() -> None:
    cache = MemoryCache(limit=2)
    for name in "ab":
        cache.put(name, CacheEntry(value=name, expires=1.0))
    assert cache.get("a") is not None
    cache.put("c", CacheEntry(value="c", expires=1.0))
    assert cache.get("b") is None
    assert cache.get("a") is not None
    assert len(cache) == 2


def test_what_is_dropped_is_gone() -> None:
    cache = MemoryCache()
    cache.put("a", CacheEntry(value=None, expires=1.0))
    cache.drop("a")
    cache.drop("a")
    assert cache.get("a") is None
