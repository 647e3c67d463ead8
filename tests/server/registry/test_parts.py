"""The small pure pieces: links, addresses, diffs, steps, what a client accepts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException
from starlette.requests import Request

from company_support import COMPANY, load
from onym.registry.engine import list_request_states
from onym.registry.records import Role
from onym.registry.registries import PROFILES, use_catalog
from onym.server.registry import urls
from onym.server.registry.dependencies import CachedResponse, ResponseCache
from onym.server.registry.help_page import build_diagram, find_transitions
from onym.server.registry.labels import format_roles
from onym.server.registry.page_parts import split_differences, split_links
from onym.server.registry.responses import get_template_environment, negotiate_media_type


@given(st.text(max_size=60))
def test_a_text_cut_at_its_links_is_the_text(text: str) -> None:
    assert "".join(link.text for link in split_links(text)) == text


def test_links_are_rfcs_and_web_addresses() -> None:
    found = [link.href for link in split_links("[RFC6733], see https://a.example/x).") if link.href]
    assert found == ["https://www.rfc-editor.org/rfc/rfc6733", "https://a.example/x"]
    assert not [link for link in split_links("javascript:alert(1) RFC0 ftp://x") if link.href]


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_difference_holds_both_texts_whole(before: str, after: str) -> None:
    one, two = split_differences(before, after)
    kept = lambda parts: "".join(part.text for part in parts)  # noqa: E731
    assert (kept(one), kept(two)) == (before, after)
    assert {piece.kind for piece in one} <= {"same", "gone"}
    assert {piece.kind for piece in two} <= {"same", "new"}


def test_a_long_field_is_shown_whole_instead_of_aligned() -> None:
    one, two = split_differences("a " * 3000, "b " * 3000)
    assert ([piece.kind for piece in one], [piece.kind for piece in two]) == (["gone"], ["new"])


@given(st.text(alphabet=st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30))
def test_a_name_in_an_address_is_one_segment(name: str) -> None:
    path = urls.entry_url("uri-schemes", name)
    assert path.isascii()
    assert path.count("/") == (5 if name in ("changes.atom", "-") else 3)
    assert not set("?#<>\"' ") & set(path)


@pytest.mark.parametrize("profile", ["rfc4395", "rfc7595", "specification-required", "expert-review"])
def test_the_picture_holds_every_state_that_the_engine_reaches(profile: str) -> None:
    found, picture = find_transitions(profile), build_diagram(profile)
    states = {step.source for step in found} | {step.target for step in found}
    drawn = {drawn.id for drawn in picture.boxes}
    assert {"withdrawn", "appeal"} <= {str(state) for state in states}
    assert drawn == {str(state) for state in states} - {"withdrawn", "appeal"}
    assert {drawn.number for drawn in picture.arrows} == set(range(1, len(picture.arrows) + 1))
    boxes = [(box.x, box.y, box.x + box.width, box.y + box.height) for box in picture.boxes]
    for arrow in picture.arrows:
        assert not [box for box in boxes if box[0] < arrow.x < box[2] and box[1] < arrow.y < box[3]]


def _list_reached(profile: str, digest: str = "") -> set[str]:
    return {str(state) for step in find_transitions(profile, digest) for state in (step.source, step.target)}


@pytest.mark.parametrize("profile", ["rfc4395", "rfc7595", "specification-required", "expert-review"])
def test_the_states_of_a_profile_are_those_that_the_engine_reaches(profile: str) -> None:
    assert {str(state) for state in list_request_states(PROFILES[profile])} == _list_reached(profile)


#: states that a simple registry without review reaches only by an update of a retired entry
_REVIEW = {"expert-review", "more-review"}


@pytest.mark.parametrize("decider", ["registrar", "reviewer", "board"])
@pytest.mark.parametrize("appeals", ["", "\nappeals = true"])
def test_the_states_of_a_defined_profile_are_those_that_the_engine_reaches(
    decider: str, appeals: str, tmp_path: Path
) -> None:
    text = COMPANY.replace('noun = "service"', f'noun = "service"{appeals}')
    text = text.replace('decided_by = "reviewer"', f'decided_by = "{decider}"')
    definition = load(tmp_path, text)
    with use_catalog(definition.catalog):
        states = {str(state) for state in list_request_states(PROFILES["services"])}
        reached = _list_reached("services", definition.catalog.digest)
    assert states == reached | _REVIEW
    assert ("appeal" in states) is bool(appeals)


def test_a_message_is_a_sentence_and_its_code_stands_out() -> None:
    filters = get_template_environment().filters
    assert [filters["sentence"](message) for message in ("no such name", "Why?", "")] == [
        "No such name.",
        "Why?",
        "",
    ]
    cut = filters["coded"]("write `a = b` <here>, not `c`")
    assert [piece for code, piece in cut if code] == ["a = b", "c"]
    assert "".join(piece for _, piece in cut) == "write a = b <here>, not c"
    assert not [piece for code, piece in filters["coded"]("one ` alone") if code]


def test_roles_are_named_as_the_standards_name_them() -> None:
    assert format_roles({Role.REGISTRANT, Role.EXPERT, Role.READER}) == "Designated Expert, registrant"
    assert format_roles(()) == ""


def asked(accept: str | None) -> Request:
    headers = [] if accept is None else [(b"accept", accept.encode())]
    return Request({"type": "http", "headers": headers, "method": "GET", "path": "/"})


@pytest.mark.parametrize(
    ("accept", "got"),
    [
        (None, "text/html"),
        ("*/*", "text/html"),
        ("application/json", "application/json"),
        ("text/html;q=0.5, application/json", "application/json"),
        ("text/*, application/json;q=0.9", "text/html"),
        ("text/html;q=0, */*;q=0.1", "application/json"),
    ],
)
def test_a_client_gets_what_it_likes_best(accept: str | None, got: str) -> None:
    assert negotiate_media_type(asked(accept), ("text/html", "application/json")) == got


@pytest.mark.parametrize("accept", ["image/png", "text/html;q=0", "text/html;q=x"])
def test_a_client_that_takes_none_of_it_is_told(accept: str) -> None:
    with pytest.raises(HTTPException) as caught:
        negotiate_media_type(asked(accept), ("text/html",))
    assert caught.value.status_code == 406


class Counted:
    """A head and a maker that count."""

    def __init__(self) -> None:
        self.number, self.made, self.looked, self.now = 1, 0, 0, 0.0

    async def head(self) -> int:
        self.looked += 1
        await asyncio.sleep(0)
        return self.number

    async def make(self) -> CachedResponse:
        self.made += 1
        return CachedResponse(str(self.made).encode(), '"x"')


def test_an_entry_is_made_once_until_the_registry_changes() -> None:
    async def run() -> None:
        it = Counted()
        cache = ResponseCache(it.head, lambda: it.now)
        many = await asyncio.gather(*(cache.get(("r", "a"), it.make) for _ in range(20)))
        assert it.looked == 1
        assert len({response.body for response in many}) <= it.made
        made = it.made
        await cache.get(("r", "a"), it.make)
        assert it.made == made
        it.now += 1
        await cache.get(("r", "a"), it.make)
        assert (it.made, it.looked) == (made, 2)
        it.number, it.now = 2, it.now + 1
        await cache.get(("r", "a"), it.make)
        assert it.made == made + 1
        cache.clear_after_write()
        await cache.get(("r", "a"), it.make)
        assert it.made == made + 2

    asyncio.run(run())


def test_what_was_made_while_somebody_wrote_is_not_kept() -> None:
    async def run() -> None:
        it = Counted()
        cache = ResponseCache(it.head, lambda: it.now)

        async def slow() -> CachedResponse:
            cache.clear_after_write()
            return await it.make()

        await cache.get(("r", "a"), slow)
        await cache.get(("r", "a"), it.make)
        assert it.made == 2

    asyncio.run(run())
