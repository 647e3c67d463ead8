"""`onym cache`: how much the response cache holds, and forgetting it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from onym.cli._options import json_option
from onym.cli._output import Session

if TYPE_CHECKING:
    from onym.llm.cache import Contents, ResponseCache

__all__ = ["command"]


@click.group("cache")
def command() -> None:
    """Look at the answers that calls with cache=true have kept, or forget them.

    They lie in your cache folder; ONYM_CACHE_DIR names another. ONYM_CACHE_SIZE (256MiB) and
    ONYM_CACHE_AGE (7d) bound them.

    \b
    Examples:
      onym chat 'llm://openai/gpt-5-mini?cache=true' "Say hello."
      onym cache stats
      onym cache clear
    """


@command.command("stats")
@json_option
@click.pass_obj
def stats(session: Session) -> None:
    """Show where the cache is, what it holds, and its bounds."""
    cache = _cache()
    found = cache.contents()
    session.record(_record(cache, found))
    session.table(
        [
            ("folder", str(cache.settings.folder)),
            ("answers", str(found.entries)),
            ("size", f"{_octets(found.octets)} of {_octets(cache.settings.size)}"),
            ("kept for", _span(cache.settings.age)),
            ("oldest", _date(found.oldest) or "-"),
            ("newest", _date(found.newest) or "-"),
        ],
        styles=("dim",),
    )


@command.command("clear")
@json_option
@click.pass_obj
def clear(session: Session) -> None:
    """Forget every answer. Processes at work may go on using the cache."""
    cache = _cache()
    found = cache.clear()
    session.record({"folder": str(cache.settings.folder), "cleared": found.entries, "octets": found.octets})
    session.say(f"forgot {found.entries} {'answer' if found.entries == 1 else 'answers'}")


def _cache() -> ResponseCache:
    from onym.llm.cache import default_cache

    return default_cache()


def _record(cache: ResponseCache, found: Contents) -> dict[str, Any]:
    return {
        "folder": str(cache.settings.folder),
        "answers": found.entries,
        "octets": found.octets,
        "most_octets": cache.settings.size,
        "most_seconds": cache.settings.age,
        "oldest": _date(found.oldest),
        "newest": _date(found.newest),
    }


def _date(when: float | None) -> str | None:
    return None if when is None else datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")


def _octets(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def _span(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.4g} {unit}"
    return f"{seconds:.4g} seconds"
