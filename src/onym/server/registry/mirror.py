"""A static mirror of the registry: its public pages and files in a folder, for a web server or a CDN.

Every file is the answer of the service's own application to a visitor without an account. Only the links
differ: they lead to files of the mirror, or to the live service for what only it can do (search, forms).
Without a live service, such forms are left out, and the text of such links stays.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from html import escape, unescape
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onym.common.files import replace_folder
from onym.errors import RegistryError, UsageError
from onym.registry.registries import REGISTRIES
from onym.registry.service import iter_entries
from onym.server.registry import urls
from onym.server.registry.responses import MEDIA_TYPES, encode_file, list_formats
from onym.server.services import STATIC_FOLDER
from onym.server.settings import RateLimit, RateLimits
from onym.uri.components import decode_component

if TYPE_CHECKING:
    from datetime import datetime

    from onym.registry.records import Head
    from onym.registry.store import Store
    from onym.server.settings import Settings

#: the file that marks a folder as a mirror, and names the last log record in it
MANIFEST: Final = "mirror.json"
#: the whole mirror is made again if the registry changes meanwhile, at most this often
MAX_ROUNDS: Final = 3
_VERSION: Final = 1
#: pages that are made at once
_AT_ONCE: Final = 16
_UNLIMITED: Final = RateLimit(burst=10**9, per_minute=10**9)
#: parameters whose pages are parts of a list; other queries belong to the live service
_PART: Final = re.compile(r"(?:after|before)=[A-Za-z0-9_.~-]+")
_SEGMENT: Final = r"([^/]+)"
_PAGE: Final = re.compile(
    rf"/(?:help|statistics|requests(?:/{_SEGMENT})?|r/{_SEGMENT}(?:/-/entry/{_SEGMENT}|/(?!-$){_SEGMENT})?)?"
)
_FEED: Final = re.compile(rf"(?:/r/{_SEGMENT})?/changes\.atom")
_DOWNLOAD: Final = re.compile(rf"(/r/{_SEGMENT}(?:/-/entry)?/{_SEGMENT})/download/{_SEGMENT}")
_EXPORT: Final = re.compile(rf"{urls.API_PREFIX}/registries/{_SEGMENT}/export/{_SEGMENT}")
_STATISTICS: Final = urls.api_url("statistics")
_STATIC: Final = "/static/"
_HREF: Final = re.compile(r'\bhref="(/[^"]*)"')
_ACCEPT: Final = b"text/html, */*;q=0.9"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """A finished mirror: its counts, and the end of the log that it shows.

    `changed` is True if the registry changed in every round, so that pages may differ by a record.
    """

    pages: int
    files: int
    size: int
    head: Head
    changed: bool


def locate_file(url: str) -> str | None:
    """Return the file of a URL of the service, relative to the mirror; None if it is not mirrored."""
    path, _, query = url.partition("?")
    if path.startswith(_STATIC):
        return path.removeprefix("/")
    if query and not _PART.fullmatch(query):
        return None
    if path == _STATISTICS:
        return "data/statistics.json"
    if _FEED.fullmatch(path):
        return path.removeprefix("/")
    if found := _EXPORT.fullmatch(path):
        return _name_data_file("data", found[1], found[2])
    if found := _DOWNLOAD.fullmatch(path):
        folder = _encode_path(found[1])
        return _name_data_file(folder, posixpath.basename(folder), found[4], encoded=True)
    if not _PAGE.fullmatch(path):
        return None
    folder = _encode_path(path)
    return posixpath.join(folder, f"-/{_encode_name(query)}.html" if query else "index.html")


def _name_data_file(folder: str, stem: str, form: str, *, encoded: bool = False) -> str | None:
    if form not in MEDIA_TYPES:
        return None
    # csv and csv-2022 have the same extension
    _, dash, version = form.partition("-")
    name = stem if encoded else _encode_segment(stem)
    return f"{folder}/{name}{dash}{version}.{MEDIA_TYPES[form][1]}"


def _encode_path(path: str) -> str:
    return "/".join(_encode_segment(segment) for segment in path.strip("/").split("/") if segment)


def _encode_segment(segment: str) -> str:
    return _encode_name(decode_component(segment, component="path"))


def _encode_name(name: str) -> str:
    """Return a file name that every system takes, also those that ignore case; names stay distinct."""
    kept = "".join(
        character if character in _SAFE or (character == "." and at) else _encode_character(character)
        for at, character in enumerate(name)
    )
    return kept if len(kept) <= _LONGEST_NAME else f"{kept[:_LONGEST_NAME]}~{_hash_name(name)}"


#: what a file name has as it is; other bytes are written as ~XX, which no server decodes
_SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_+-")
_LONGEST_NAME: Final = 180


def _encode_character(character: str) -> str:
    return "".join(f"~{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


def _hash_name(name: str) -> str:
    from hashlib import sha256  # late: few names are that long

    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def quote_file(file: str) -> str:
    """Return a file's path for a URL; some stores of files read a literal + as a blank."""
    return file.replace("+", "%2B")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTargets:
    """Where links lead: to `files` of the mirror, by URL of the service, or to the `live` service.

    With `base`, the URL of the mirror, links to its files are absolute. `origin` is where the service's
    feeds lead.
    """

    files: frozenset[str]
    origin: str
    live: str | None
    base: str | None

    def resolve(self, url: str, source: str) -> str | None:
        """Return the link in the file `source` to a URL of the service; None if it leads nowhere."""
        target, hash_, fragment = url.partition("#")
        file = locate_file(target)
        if file is None or file not in self.files:
            return None if self.live is None else self.live + url
        _, mark, query = target.partition("?")
        # the query of a static file names its version
        rest = (mark + query if target.startswith(_STATIC) else "") + hash_ + fragment
        if self.base is not None:
            return f"{self.base}/{quote_file(file)}{rest}"
        return quote_file(posixpath.relpath(file, posixpath.dirname(source) or ".")) + rest

    def rewrite_feed(self, text: str, source: str) -> str:
        """Return a feed whose links lead to the mirror if its URL is known, else to the live service."""
        if self.base is None and self.live is not None:
            return text.replace(f'href="{self.origin}/', f'href="{self.live}/')
        found = re.compile(rf'href="{re.escape(self.origin)}(/[^"]*)"')

        def lead(match: re.Match[str]) -> str:
            # the page of a removed entry is nowhere
            led = self.resolve(unescape(match[1]), source) or self.resolve(urls.HOME_URL, source)
            return f'href="{escape(led or "")}"'

        return found.sub(lead, text)


class _LinkRewriter(HTMLParser):
    """Writes a page again with other links. Everything else stays as it is, byte for byte."""

    _LINKS: Final = frozenset({"href", "src", "action"})

    def __init__(self, lead: Callable[[str], str | None], live: str | None) -> None:
        super().__init__(convert_charrefs=False)
        self._live = live
        self._lead = lead
        self._parts: list[str] = []
        #: the anchors that are open, True for those that lost their link
        self._anchors: list[bool] = []
        self._in_dropped_form = False

    def rewrite(self, text: str) -> str:
        self.feed(text)
        self.close()
        return "".join(self._parts)

    def _write(self, text: str) -> None:
        if not self._in_dropped_form:
            self._parts.append(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = self.get_starttag_text() or ""
        changed, lost = False, False
        kept: list[tuple[str, str | None]] = []
        for name, value in attrs:
            if name.startswith("hx-"):  # it would ask the live service from another origin
                changed = True
            elif name in self._LINKS and value is not None and value.startswith("/"):
                # only a service answers a form, also at the URL of a page that is here
                led = self._lead(value) if name != "action" else self._live and self._live + value
                changed, lost = True, lost or led is None
                if led is not None:
                    kept.append((name, led))
            else:
                kept.append((name, value))
        if tag == "form" and lost:
            self._in_dropped_form = True
        if tag == "a":
            self._anchors.append(lost)
        if lost and tag == "link":
            return
        self._write(_format_tag("span" if lost and tag == "a" else tag, kept) if changed else raw)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._write(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form" and self._in_dropped_form:
            self._in_dropped_form = False
            return
        lost = tag == "a" and bool(self._anchors) and self._anchors.pop()
        self._write("</span>" if lost else f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self._write(data)

    def handle_entityref(self, name: str) -> None:
        self._write(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self._write(f"&#{name};")

    def handle_comment(self, data: str) -> None:
        self._write(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._write(f"<!{decl}>")


def _format_tag(tag: str, attrs: list[tuple[str, str | None]]) -> str:
    said = "".join(f" {name}" if value is None else f' {name}="{escape(value)}"' for name, value in attrs)
    return f"<{tag}{said}>"


async def write_mirror(
    store: Store,
    settings: Settings,
    folder: Path,
    *,
    live: str | None = None,
    base: str | None = None,
    clock: Callable[[], datetime] | None = None,
) -> Mirror:
    """Write the mirror to `folder`, which it replaces in one step when it is complete.

    `live` is the URL of the service that search and forms lead to. `base` is the URL at which the mirror
    will be published; without it, links are relative. The same registry gives the same files, and files
    that did not change keep their time. `clock` returns the time in UTC.

    Raises UsageError (registry.not-a-mirror) if `folder` has other content, RegistryError
    (registry.mirror-failed) if the service cannot make a page, OSError.
    """
    folder = folder.absolute()  # noqa: ASYNC240 - it reads nothing
    _require_replaceable(folder)
    from onym.server.app import create_app  # late: the application imports this package

    app = create_app(replace(settings, rates=RateLimits(reads=_UNLIMITED), smtp=None), store, clock=clock)
    host = settings.allowed_hosts[0]

    async def fetch(url: str) -> tuple[int, bytes]:
        return await _fetch(app, host, url)

    folder.parent.mkdir(parents=True, exist_ok=True)
    part = folder.with_name(f".{folder.name}.{token_hex(8)}.part")
    try:
        for _ in range(MAX_ROUNDS):
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            head = await store.head()
            files = _write_assets(part) | await _write_entry_files(store, part)
            files |= await _fetch_files(fetch, part, [url async for url in _iter_seeds(store)])
            changed = (await store.head()).number != head.number
            if not changed:
                break
        targets = LinkTargets(files=frozenset(files), origin=settings.base_url, live=live, base=base)
        _rewrite_files(part, files, targets)
        sizes = [(part / file).stat().st_size for file in files]
        mirror = Mirror(
            pages=sum(file.endswith(".html") for file in files),
            files=len(files),
            size=sum(sizes),
            head=head,
            changed=changed,
        )
        (part / MANIFEST).write_bytes(_encode_manifest(mirror))
        _keep_times(folder, part)
        replace_folder(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return mirror


def _require_replaceable(folder: Path) -> None:
    """Raise UsageError if the folder may not be replaced, because something else is in it."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        wrong = "is not a folder"
    elif folder.exists() and any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        wrong = f"has files, but no {MANIFEST}: it is not a mirror, and would be replaced"
    else:
        return
    raise UsageError(f"{folder} {wrong}", code="registry.not-a-mirror", hint="name a new folder")


def _encode_manifest(mirror: Mirror) -> bytes:
    at = mirror.head.at
    found = {
        "onym_mirror": _VERSION,
        "number": mirror.head.number,
        "digest": mirror.head.digest,
        "at": None if at is None else at.isoformat(),
        "pages": mirror.pages,
        "files": mirror.files,
    }
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"


async def _iter_seeds(store: Store) -> AsyncIterator[str]:
    """Yield the URLs of pages and files; further parts and requests are found by links."""
    for url in (urls.HOME_URL, urls.help_url(), urls.STATISTICS_URL, _STATISTICS, urls.requests_url()):
        yield url
    yield urls.feed_url(None)
    for registry, row in REGISTRIES.items():
        yield urls.entries_url(registry)
        yield urls.feed_url(registry)
        for form in MEDIA_TYPES:
            if form in dict(list_formats(registry)):
                yield urls.export_url(registry, form)
        for name in await store.names(row.id):
            if "/" in name:  # an irregular row, for which the service has no page
                continue
            yield urls.entry_url(registry, name)


async def _write_entry_files(store: Store, part: Path) -> dict[str, str]:
    """Write the files of each entry. Return the URL of each file."""
    files = {}
    for registry in REGISTRIES:
        forms = [form for form, _ in list_formats(registry)]
        async for entry in iter_entries(store, registry):
            for form in forms if "/" not in entry.name else ():
                url = urls.download_url(registry, entry.name, form)
                file = locate_file(url)
                if file is not None:
                    _write_file(part / file, encode_file((entry,), registry, form))
                    files[file] = url
    return files


def _write_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


async def _fetch_files(
    fetch: Callable[[str], Awaitable[tuple[int, bytes]]], part: Path, seeds: list[str]
) -> dict[str, str]:
    """Write the answers of the service as they are. Return the URL of each file."""
    required = frozenset(seeds)
    files: dict[str, str] = {}
    seen: set[str] = set()

    async def fetch_file(url: str, file: str) -> list[str]:
        status, body = await fetch(url)
        # the service may link a request that only some may see
        if status == 404 and url not in required:
            return []
        if status != 200:
            raise RegistryError(
                f"the service answered {status} for {url}",
                code="registry.mirror-failed",
                field=url,
                hint="Run onym registry verify; onym registry serve logs the cause when you open that page.",
            )
        _write_file(part / file, body)
        files[file] = url
        if not file.endswith(".html"):
            return []
        return [unescape(link).partition("#")[0] for link in _HREF.findall(body.decode("utf-8"))]

    left = seeds
    while left:
        batch = []
        for url in left:
            file = locate_file(url)
            if file is not None and file not in seen and not _is_written_directly(url):
                seen.add(file)
                batch.append((url, file))
        left = []
        # some at once, because a page waits for several queries
        for at in range(0, len(batch), _AT_ONCE):
            links = await asyncio.gather(*(fetch_file(*pair) for pair in batch[at : at + _AT_ONCE]))
            left += dict.fromkeys(chain.from_iterable(links))
    return files


def _is_written_directly(url: str) -> bool:
    """Is this a file that needs no page of the service?"""
    return url.startswith(_STATIC) or _DOWNLOAD.fullmatch(url) is not None


def _write_assets(part: Path) -> dict[str, str]:
    """Write style sheet, script and icon. Return the URL of each file."""
    files = {}
    for asset in STATIC_FOLDER.rglob("*"):
        if asset.is_file():
            file = f"static/{asset.relative_to(STATIC_FOLDER).as_posix()}"
            _write_file(part / file, asset.read_bytes())
            files[file] = f"/{file}"
    return files


def _rewrite_files(part: Path, files: dict[str, str], targets: LinkTargets) -> None:
    for file in files:
        path = part / file
        if file.endswith(".html"):
            rewriter = _LinkRewriter(partial(targets.resolve, source=file), targets.live)
            path.write_text(rewriter.rewrite(path.read_text("utf-8")), "utf-8", newline="")
        elif file.endswith(".atom"):
            path.write_text(targets.rewrite_feed(path.read_text("utf-8"), file), "utf-8", newline="")


def _keep_times(old: Path, new: Path) -> None:
    """Give unchanged files their old time, so that tools that copy by time copy only what changed."""
    for path in new.rglob("*"):
        before = old / path.relative_to(new)
        if path.is_file() and before.is_file() and before.read_bytes() == path.read_bytes():
            state = before.stat()
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


async def _fetch(app: Any, host: str, url: str) -> tuple[int, bytes]:
    """Return status and body of the application's answer to a visitor without an account."""
    path, _, query = url.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "https",
        "path": decode_component(path, component="path"),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": [(b"host", host.encode("ascii")), (b"accept", _ACCEPT)],
        "client": None,
        "server": None,
    }
    status, chunks = 0, list[bytes]()
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not messages:  # this client does not disconnect
            await asyncio.Event().wait()
        return messages.pop()

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            chunks.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, b"".join(chunks)
