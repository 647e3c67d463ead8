"""The static mirror: the pages and files of the service, with links that lead somewhere."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from onym.errors import OnymError
from onym.registry.iana import load_builtin_snapshot
from onym.registry.records import IANA_CLOCK, EventKind
from onym.registry.registries import REGISTRIES
from onym.server.registry import mirror as mirrors
from onym.server.registry import urls
from onym.server.registry.mirror import MANIFEST, Mirror, locate_file, quote_file, write_mirror
from onym.server.registry.responses import list_formats
from onym.uri.components import decode_component
from server.registry.site import Site
from server_support import BASE

_LINKS = ("href", "src", "action")
_ATOM = "application/atom+xml, */*"


class Page(HTMLParser):
    """The links, IDs and everything else of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.actions: list[str] = []
        self.ids: set[str] = set()
        self.content: list[Any] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        kept = []
        for name, value in attrs:
            if name == "action":
                self.actions.append(value or "")
            elif name in _LINKS:
                self.links.append(value or "")
            elif not name.startswith("hx-"):
                kept.append((name, value))
            if name == "id":
                self.ids.add(value or "")
        self.content.append((tag, kept))

    def handle_endtag(self, tag: str) -> None:
        self.content.append(tag)

    def handle_data(self, data: str) -> None:
        self.content.append(data)


def make(site: Site, folder: Path, **options: Any) -> Mirror:
    world = site.world
    result = world.do(write_mirror, world.store, world.settings, folder, clock=world.clock.now, **options)
    assert isinstance(result, Mirror)
    return result


@pytest.fixture(scope="module")
def linked(shared: Site, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mirror]:
    """A mirror beside its service."""
    folder = tmp_path_factory.mktemp("mirror") / "public"
    return folder, make(shared, folder, live=BASE)


def read_pages(folder: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text("utf-8")) for path in folder.rglob("*.html")}


def find_broken_links(folder: Path, base: str = "") -> list[tuple[str, str]]:
    """Return the links (with their pages) that lead to no file or to no element of the mirror."""
    pages = read_pages(folder)
    assert len(pages) > 20
    broken = []
    for path, page in pages.items():
        for link in page.links:
            if base and link.startswith(f"{base}/"):
                link, start = link.removeprefix(f"{base}/"), folder
            elif re.match(r"https?://|mailto:", link):
                continue
            else:
                start = path.parent
            target, _, fragment = link.partition("#")
            target = target.partition("?")[0]
            file = (start / decode_component(target, component="path")).resolve() if target else path
            lost = not file.is_file() or not file.is_relative_to(folder.resolve())
            if lost or (fragment and fragment not in pages[file].ids):
                broken.append((str(path.relative_to(folder)), link))
    return broken


def test_every_link_of_the_mirror_leads_to_a_file_or_to_the_service(linked: tuple[Path, Mirror]) -> None:
    folder, _ = linked
    assert find_broken_links(folder) == []
    links = {link for page in read_pages(folder).values() for link in page.links}
    actions = {action for page in read_pages(folder).values() for action in page.actions}
    assert {f"{BASE}/search", f"{BASE}/requests"} <= actions
    assert all(action.startswith(f"{BASE}/") for action in actions)
    live = {link.removeprefix(BASE) for link in links if link.startswith(BASE)}
    assert {"/submit", "/login"} <= live
    # what the mirror has is never looked for at the service
    assert not [
        link for link in live if (file := locate_file(link.partition("#")[0])) and (folder / file).exists()
    ]


def test_the_pages_equal_those_of_the_service_in_all_but_links(
    shared: Site, linked: tuple[Path, Mirror]
) -> None:
    folder, mirror = linked
    entries = [
        urls.entry_url(registry, name)
        for registry in REGISTRIES
        for name in shared.world.do(shared.world.store.names, registry)
    ]
    pages = [
        "/", "/help", "/requests", "/statistics", *(f"/r/{registry}" for registry in REGISTRIES), *entries,
        *(f"/requests/{shared.ids[state]}" for state in ("list", "approved", "rejected", "hostile")),
    ]  # fmt: skip
    for url in pages:
        file = locate_file(url)
        assert file is not None
        live = shared.get(url)
        assert live.status_code == 200
        assert Page((folder / file).read_text("utf-8")).content == Page(live.text).content, url
    assert mirror.pages >= len(pages)
    assert mirror.head == shared.world.do(shared.world.store.head)


def test_the_files_are_those_of_the_service(shared: Site, linked: tuple[Path, Mirror]) -> None:
    folder, _ = linked
    found = ["/changes.atom", urls.api_url("statistics")]
    for registry in REGISTRIES:
        found.append(urls.feed_url(registry))
        found += [urls.export_url(registry, form) for form, _ in list_formats(registry)]
    for name in ("http", "hostile+x", "proviso"):
        found += [urls.download_url("uri-schemes", name, form) for form, _ in list_formats("uri-schemes")]
    for url in found:
        file = locate_file(url)
        assert file is not None
        assert (folder / file).read_bytes() == shared.get(url, accept=_ATOM).content, url


def test_drafts_that_are_not_public_are_not_in_the_mirror(shared: Site, linked: tuple[Path, Mirror]) -> None:
    folder, _ = linked
    assert not (folder / "requests" / shared.ids["draft"]).exists()
    for path in folder.rglob("*"):
        assert not path.is_file() or b"drafty" not in path.read_bytes()


def test_a_mirror_without_a_service_has_no_forms_and_no_links_to_one(shared: Site, tmp_path: Path) -> None:
    folder = tmp_path / "public"
    make(shared, folder)
    assert find_broken_links(folder) == []
    for page in read_pages(folder).values():
        assert not page.tags & {"form", "input", "button"}
        assert not [link for link in page.links if link.startswith((BASE, "/"))]
    assert "Register a name" in (folder / "index.html").read_text("utf-8")


def test_a_base_url_makes_links_absolute_also_those_of_feeds(shared: Site, tmp_path: Path) -> None:
    folder, base = tmp_path / "public", "https://cdn.example/registry"
    make(shared, folder, base=base)
    assert find_broken_links(folder, base) == []
    home = Page((folder / "index.html").read_text("utf-8"))
    assert f"{base}/r/uri-schemes/index.html" in home.links
    feed = (folder / "changes.atom").read_text("utf-8")
    links = re.findall(r'href="([^"]*)"', feed)
    assert f"{base}/changes.atom" in links
    assert f"{base}/r/uri-schemes/proviso/index.html" in links
    assert all(link.startswith(f"{base}/") for link in links)


def test_names_get_files_of_their_own_that_stay_in_the_mirror() -> None:
    names = [
        "http", "HTTP", "h~74tp", "..", ".", "index.html", "changes.atom", "-", "a/b", "a%2Fb", "coap+tcp",
        "a b", "ü", "x" * 100, "X" * 100, "X" * 101, ".htaccess", "nul\0",
    ]  # fmt: skip
    files = [locate_file(urls.entry_url("uri-schemes", name)) for name in names]
    assert None not in files
    found = [str(file) for file in files]
    assert len({file.lower() for file in found}) == len(names)
    assert not {"r/uri-schemes/index.html", "r/uri-schemes/changes.atom"} & set(found)
    for file in found:
        assert re.fullmatch(r"r/uri-schemes/[a-z0-9._+~/-]+/index\.html", file), file
        assert not [part for part in file.split("/") if part.startswith(".") or len(part) > 255]
    assert quote_file("r/uri-schemes/coap+tcp/index.html") == "r/uri-schemes/coap%2Btcp/index.html"
    assert locate_file("/r/uri-schemes?q=x") is None
    assert locate_file("/r/uri-schemes/http/change") is None
    assert locate_file("/account") is None
    assert locate_file("/r/uri-schemes?after=abc") != locate_file("/r/uri-schemes")


def test_unchanged_files_keep_their_time_and_the_rest_is_replaced(fresh: Site, tmp_path: Path) -> None:
    folder = tmp_path / "public"
    first = make(fresh, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    make(fresh, folder)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    (folder / "r/uri-schemes/http/index.html").write_text("of another hand")
    fresh.act("ian", EventKind.OVERRIDE, name="ftp", remove="yes", reason="never used")
    second = make(fresh, folder)
    assert second.head.number == first.head.number + 1
    assert not (folder / "r/uri-schemes/ftp").exists()
    assert "of another hand" not in (folder / "r/uri-schemes/http/index.html").read_text("utf-8")
    assert find_broken_links(folder) == []
    assert json.loads((folder / MANIFEST).read_bytes())["number"] == second.head.number
    assert [path.name for path in tmp_path.iterdir() if "public" in path.name] == ["public"]


def test_a_failure_leaves_the_old_mirror(
    fresh: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "public"
    make(fresh, folder)
    before = (folder / MANIFEST).read_bytes()
    fresh.act("ian", EventKind.OVERRIDE, name="ftp", remove="yes", reason="never used")

    async def fail(*_: Any) -> tuple[int, bytes]:
        return 500, b""

    monkeypatch.setattr(mirrors, "_fetch", fail)
    with pytest.raises(OnymError) as caught:
        make(fresh, folder)
    assert caught.value.code == "registry.mirror-failed"
    assert (folder / MANIFEST).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if "public" in path.name] == ["public"]


@pytest.mark.parametrize("kind", ["file", "other content", "link"])
def test_only_a_mirror_is_replaced(shared: Site, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "public"
    if kind == "file":
        folder.write_text("mine")
    else:
        other = folder if kind == "other content" else tmp_path / "other"
        other.mkdir()
        (other / "thesis.txt").write_text("mine")
        if kind == "link":
            folder.symlink_to(other)
    with pytest.raises(OnymError) as caught:
        make(shared, folder)
    assert caught.value.code == "registry.not-a-mirror"


def test_all_parts_of_a_long_list_are_in_the_mirror(fresh: Site, tmp_path: Path) -> None:
    rows = load_builtin_snapshot("uri-schemes").entries
    world, folder = fresh.world, tmp_path / "public"
    world.do(world.store.import_entries, "uri-schemes", rows, IANA_CLOCK, world.clock.now(), source="seed")
    made = make(fresh, folder)
    names = world.do(world.store.names, "uri-schemes")
    assert len(names) > 400
    assert made.pages > len(names)
    lists = [folder / "r/uri-schemes/index.html", *(folder / "r/uri-schemes/-").glob("*.html")]
    text = "".join(path.read_text("utf-8") for path in lists)
    assert not [
        name
        for name in names
        if f'{quote_file(str(locate_file(urls.entry_url("uri-schemes", name))))[14:]}"' not in text
    ]
    assert find_broken_links(folder) == []
