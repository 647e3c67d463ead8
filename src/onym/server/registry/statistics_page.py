"""The page of statistics: entries by status, requests by state, the time of each stage, and months."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from onym.registry.registries import REGISTRIES
from onym.registry.words import apply_words
from onym.server.registry import urls
from onym.server.registry.dependencies import get_store
from onym.server.registry.labels import (
    STATE_LABELS,
    format_time,
    translate_page,
    translate_plural,
    translate_text,
)
from onym.server.registry.responses import build_page_frame, make_page_response
from onym.server.registry.urls import make_route

if TYPE_CHECKING:
    from starlette.requests import Request

    from onym.registry.store import Statistics

STAGE_LABELS: Final[Mapping[str, str]] = {
    "draft": "Draft",
    "list": "Mailing list review",
    "iana": "IANA check",
    "expert": "Expert Review",
    "iesg": "IESG approval",
}
#: months on the page; the API has more
_MONTHS_SHOWN: Final = 24
#: seconds of a unit, and its forms for one and for several
UNITS: Final = (
    (86_400, "%(count)s day", "%(count)s days"),
    (3_600, "%(count)s hour", "%(count)s hours"),
    (60, "%(count)s minute", "%(count)s minutes"),
)


async def load_statistics(request: Request) -> Statistics:
    """Return the statistics, which are computed again only after a new log record."""
    state = request.app.state
    kept: Statistics | None = getattr(state, "registry_statistics", None)
    if kept is None or kept.number != (await get_store(request).head()).number:
        kept = state.registry_statistics = await get_store(request).compute_statistics()
    return kept


@translate_page
async def statistics_page(request: Request) -> Response:
    """GET: the statistics of all registries."""
    found = await load_statistics(request)
    return make_page_response(
        request,
        "statistics.html",
        build_page_frame(request, translate_text("Statistics"), (urls.HOME_URL, "Home")),
        number=found.number,
        at=format_time(found.at),
        groups=[
            (REGISTRIES[numbers.registry], numbers, numbers.months[-_MONTHS_SHOWN:][::-1])
            for numbers in found.registries
        ],
        state_labels=STATE_LABELS,
        stage_labels={stage: apply_words(translate_text(label)) for stage, label in STAGE_LABELS.items()},
        describe_time=describe_time,
        data=urls.api_url("statistics"),
    )


def describe_time(seconds: int) -> str:
    """Return a length of time in its largest unit: "12 days"."""
    for size, one, many in UNITS:
        if seconds >= size:
            count = round(seconds / size)
            return translate_plural(one, many, count) % {"count": count}
    return translate_text("less than a minute")


ROUTES: Final = (make_route(urls.STATISTICS_URL, {"GET": statistics_page}),)
