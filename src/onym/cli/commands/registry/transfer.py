"""`onym registry import`, `export`, `mirror` and `link-messages`: files that are read and written."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onym._lazy import require_extra
from onym.cli import exit_codes
from onym.cli._commands import exit_with, make_command, pass_session
from onym.cli._input import read_file, read_start, translate_key_errors
from onym.cli._output import Session, escape_controls, is_terminal, replace_text_file, select_fields
from onym.cli.commands.registry import _common
from onym.errors import SignatureError, UsageError
from onym.registry.records import Actor, Entry, Event, EventKind, Request, Status
from onym.registry.service import (
    apply_step,
    get_applied_request,
    import_snapshot,
    list_entries,
    plan_archive_links,
    preview_import,
    render_entries,
    render_feed,
    render_namespaces,
)
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.registry.iana import Snapshot
    from onym.registry.list_archive import RequestLinks
    from onym.registry.store import EntryChange, Store
    from onym.server.registry.mirror import Mirror
    from onym.server.settings import Settings
    from onym.sign.keys import SigningKey

#: maximum number of changes in a feed
FEED_LIMIT: Final = 200
#: characters of the file names in the audit log
_MAX_SUBJECT: Final = 200
#: bytes of a key file
_MAX_KEY: Final = 64 * 1024


def _load_signing_key(file: str) -> SigningKey:
    """Load a private key for the algorithm that it names, or the default of its key type."""
    from onym.sign.keys import ALGORITHMS, SigningKey

    try:
        text = read_start(file, _MAX_KEY).decode("utf-8")
        jwk = json.loads(text)
    except (ValueError, RecursionError):
        jwk = None
    with translate_key_errors(file, "sign.bad-key", "sign.malformed"):
        if not isinstance(jwk, dict):
            raise SignatureError(
                "the file is not a key", code="sign.bad-key", hint="use a private key as JWK (RFC 7517)"
            )
        kind = (jwk.get("kty"), jwk.get("crv"))
        own = next((name for name, row in ALGORITHMS.items() if row.tokens and row.kind == kind), "Ed25519")
        return SigningKey.from_jwk(Secret(text), algorithm=str(jwk.get("alg") or own))


_FORMATS: Final = ("xml", "csv", "csv-2015", "csv-2022", "text", "json", "atom", "namespaces", "tables")
#: irregular rows that are shown without --json
_SHOWN: Final = 20


@make_command("import", short_help="Import a published registry (CSV, XML, JSON or text).")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--format", "format_", metavar="FORMAT", help="The format of the files. Default: detected.")
@click.option("--contacts", type=click.Path(dir_okay=False),
              help="A file of contacts: [[id, name, organisation, URI, date], ...]")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Read and report without changes.")
@_common.registry_option
@_common.account_options
@_common.at_option
@_common.pass_database
async def import_command(
    session: Session,
    /,
    files: Sequence[str],
    format_: str | None,
    contacts: str | None,
    dry_run: bool,
    registry: str,
    account: str | None,
    role: str | None,
    at: str | None,
    db: str | None,
) -> None:
    """Import a published registry (CSV, XML, JSON or text).

    Rows that the registry rejects are left out, and the exit code is then 11. A file that cannot be read to
    the end changes nothing. Irregular rows are imported and reported. Entries that are missing in a file stay
    as they are. An import never changes who controls an existing entry: of a JSON export, only new names
    bring their registrants. With --dry-run and without a database, the file is compared with the data that
    Onym ships.

    \b
    Examples:
      onym registry import --dry-run uri-schemes-1.csv
      onym registry import --account ann uri-schemes.xml
    """
    from onym.registry.iana import load_builtin_snapshot  # late: the readers take time to load

    when = _common.parse_time(at)
    snapshots = [_read_snapshot(file, format_, registry, contacts) for file in files]
    if _common.find_database(session, db) is None and dry_run:
        shipped = load_builtin_snapshot(registry).entries
        files_read = [_compare_snapshot(snapshot, shipped, when) for snapshot in snapshots]
    else:
        async with _common.open_store(session, db) as store:
            if dry_run:
                present = await list_entries(store, registry)
                files_read = [_compare_snapshot(snapshot, present, when) for snapshot in snapshots]
            else:
                actor = await _common.resolve_actor(store, registry, account=account, role=role)
                files_read = [
                    await _import_snapshot(session, store, snapshot, actor, when) for snapshot in snapshots
                ]
                subject = f"{registry}: {', '.join(Path(file).name for file in files)}"[:_MAX_SUBJECT]
                await store.audit.write(
                    _common.make_audit_record("registry.import", subject, account=actor.id)
                )
    session.print_record({"registry": registry, "dry_run": dry_run, "files": files_read})
    for record in files_read:
        _print_import(session, record, dry_run=dry_run)
    if any(record["refused"] for record in files_read):
        exit_with(exit_codes.REGISTRY)


def _read_snapshot(file: str, format_: str | None, registry: str, contacts: str | None) -> Snapshot:
    from onym.registry.iana import MAX_BYTES, read_snapshot

    people = None if contacts is None else read_start(contacts, MAX_BYTES + 1)
    return read_snapshot(
        read_start(file, MAX_BYTES + 1),
        format=format_,
        registry=registry,
        contacts=people,
        source=Path(file).name,
    )


def _compare_snapshot(snapshot: Snapshot, present: Sequence[Entry], at: datetime) -> dict[str, Any]:
    """Return the changes that an import would make."""
    preview = preview_import(snapshot, present, at)
    record = _build_import_record(snapshot)
    record["irregular"] += [_build_refusal(name, reason) for name, reason in preview.remarks]
    record |= {fate: len(names) for fate, names in preview.names.items()}
    record["refused"] = preview.refused
    return record | {"names": {fate: list(preview.names[fate]) for fate in ("added", "changed")}}


def _build_refusal(name: str, reason: str) -> dict[str, Any]:
    return {"name": name, "code": "refused", "reason": reason, "line": None}


def _build_import_record(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "source": snapshot.source,
        "vintage": snapshot.vintage,
        "entries": len(snapshot.entries),
        "refused": 0,
        "irregular": [select_fields(row, "name", "code", "reason", "line") for row in snapshot.irregular],
    }


async def _import_snapshot(
    session: Session, store: Store, snapshot: Snapshot, actor: Actor, at: datetime
) -> dict[str, Any]:
    with _common.show_counter(session, snapshot.source, len(snapshot.entries)) as progress:
        report = await import_snapshot(store, snapshot, actor, at, progress=progress)
    record = _build_import_record(snapshot)
    record["irregular"] += [_build_refusal(row.name, row.reason) for row in report.irregular]
    record["refused"] = sum(not irregular.taken for irregular in report.irregular)
    return record | select_fields(report, "added", "changed", "same") | {"absent": list(report.absent)}


def _print_import(session: Session, record: dict[str, Any], *, dry_run: bool) -> None:
    if session.as_json:
        return
    would = "would be " if dry_run else ""
    absent = record.get("absent") or ()
    counts = f"{record['added']} {would}added, {record['changed']} {would}changed, {record['same']} unchanged"
    session.print_line(f"{session.paint(record['source'], 'name')}  {record['entries']} entries: {counts}")
    if absent:
        session.print_note(f"{len(absent)} entries are not in {record['source']}; they stay as they are")
    if record["refused"]:
        rows_were = "1 row was" if record["refused"] == 1 else f"{record['refused']} rows were"
        session.print_note(f"{rows_were} rejected; the reasons are below")
    irregular = record["irregular"]
    if irregular:
        session.print_line(f"\n{len(irregular)} irregular rows")
        rows = [(str(row["line"] or ""), row["name"], row["reason"]) for row in irregular[:_SHOWN]]
        session.print_table(rows, indent="  ", styles=("dim", "name"))
        if len(irregular) > _SHOWN:
            session.print_note(f"{len(irregular) - _SHOWN} more; use --json to see all of them")


@make_command("export", short_help="Export a registry in one of many formats.")
@click.option("--format", "format_", type=click.Choice(_FORMATS), default="xml", metavar="FORMAT",
              show_default=True, help=f"The format of the file: {', '.join(_FORMATS)}.")  # fmt: skip
@click.option("--status", type=_common.STATUS_CHOICE, metavar="STATUS", help="The status, for csv-2015.")
@click.option("-o", "--output", type=click.Path(dir_okay=False),
              help="Write to FILE, which is replaced only when the export is complete.")  # fmt: skip
@click.option("--sign-key", metavar="FILE", help="A private key (JWK) to sign the namespaces file.")
@click.option("--authority", metavar="DOMAIN,YEAR",
              help="The authority of the feed's IDs (RFC 4151). Default: that of base_url.")  # fmt: skip
@click.option(
    "--config", metavar="FILE", help="The settings file (TOML), for atom. Default: ONYM_REGISTRY_CONFIG."
)
@_common.registry_option
@_common.at_option
@_common.pass_database
async def export_command(
    session: Session,
    /,
    format_: str,
    output: str | None,
    sign_key: str | None,
    authority: str | None,
    config: str | None,
    **options: Any,
) -> None:
    """Export a registry in an IANA format, as JSON, as an Atom feed of changes, or as a namespaces file.

    Without a database, the shipped data is written, with its own date. With --json and -o, the output is a
    JSON summary.

    \b
    Examples:
      onym registry export --format csv -o uri-schemes.csv
      onym registry export --format namespaces --sign-key root.jwk -o names.jws
      onym registry export --format atom --authority registry.example,2026
    """
    if sign_key is not None and format_ != "namespaces":
        raise UsageError("--sign-key needs --format namespaces", code="usage.command-line")
    if session.as_json and output is None:
        raise UsageError(
            "--json needs -o FILE, because the registry itself goes to standard output",
            code="usage.command-line",
        )
    if options["status"] is not None and format_ != "csv-2015":
        raise UsageError(
            "--status needs --format csv-2015, which has one file per status", code="usage.command-line"
        )
    if format_ != "atom" and (authority or config):
        raise UsageError("--authority and --config need --format atom", code="usage.command-line")
    feed = _build_feed_options(session, options["registry"], authority, config) if format_ == "atom" else {}
    text = await _export_registry(session, format_, sign_key, feed, **options)
    if output is None:
        # text of registrants may contain control characters
        sys.stdout.write(escape_controls(text) if is_terminal(sys.stdout) else text)
        return
    with replace_text_file(Path(output)) as write:
        write(text)
    session.print_record(
        {"file": output, "format": format_, "registry": options["registry"], "characters": len(text)}
    )
    session.print_line(f"wrote {output}")


@make_command("mirror", short_help="Write all public pages and files to a folder.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--base-url", metavar="URL",
              help="The URL at which the mirror will be published. Default: links are relative.")  # fmt: skip
@click.option("--live", metavar="ORIGIN",
              help="The service for search and forms. Default: base_url of the settings.")  # fmt: skip
@click.option("--config", metavar="FILE", help="The settings file (TOML). Default: ONYM_REGISTRY_CONFIG.")
@_common.db_option
@pass_session
def mirror_command(
    session: Session,
    /,
    folder: Path,
    base_url: str | None,
    live: str | None,
    config: str | None,
    db: str | None,
) -> None:
    """Write all public pages, files and feeds to FOLDER, for a web server or a CDN.

    The folder is replaced in one step when the mirror is complete. The same registry gives the same files,
    and unchanged files keep their time. Links to what only a service can do (search, forms, sign-in) lead to
    --live. Without a service, forms are left out and such links become plain text.

    \b
    Examples:
      onym registry mirror public --config registry.toml
      onym registry mirror public --base-url https://cdn.example/registry
    """
    require_extra("starlette", "registry")
    from onym.server.registry.mirror import write_mirror  # late: only this command needs the pages

    settings, service, base = _resolve_addresses(session, base_url, live, config, db)

    async def work() -> Mirror:
        async with _common.open_store(session, settings.database.reveal()) as store:
            return await write_mirror(store, settings, folder, live=service, base=base)

    import asyncio  # late: asyncio is not needed to print help

    with _common.show_status(session, f"writing {folder}"):
        mirror = asyncio.run(work())
    head = select_fields(mirror.head, "number", "digest")
    counts = select_fields(mirror, "pages", "files", "size", "changed")
    session.print_record({"folder": str(folder), "live": service, "base_url": base, **counts, "head": head})
    session.print_line(f"wrote {folder}: {mirror.pages} pages, {mirror.files} files")
    if mirror.changed:
        session.print_note("the registry changed meanwhile; run the command again for one state of all pages")
    if service is None and not session.as_json:
        session.print_note("search and forms are left out, because no service is known; use --live ORIGIN")


def _resolve_addresses(
    session: Session, base_url: str | None, live: str | None, config: str | None, db: str | None
) -> tuple[Settings, str | None, str | None]:
    """Return the settings, the origin of the service and the URL of the mirror. Raises UsageError."""
    from onym.server.settings import Settings, load_settings, parse_origin, parse_web_url

    settings = load_settings(config, database=_common.require_database(session, db, config))
    service = None if settings.base_url == Settings().base_url else settings.base_url
    service = service if live is None else _parse_option("--live", live, parse_origin)
    base = None if base_url is None else _parse_option("--base-url", base_url, parse_web_url).rstrip("/")
    # the IDs of feeds belong to the host of the service, or to that of a mirror without a service
    origin = service or ("/".join(base.split("/")[:3]) if base else settings.base_url)
    return replace(settings, base_url=origin, allowed_hosts=()), service, base


def _parse_option(option: str, value: str, parse: Callable[[object], str]) -> str:
    try:
        return parse(value)
    except ValueError as error:
        raise UsageError(f"{option} {error}", code="usage.base-url") from None


def _build_feed_options(
    session: Session, registry: str, authority: str | None, config: str | None
) -> dict[str, Any]:
    """Return the authority of a feed's IDs and the origin of its links, from the option or the settings."""
    from urllib.parse import urlsplit

    from onym.server.settings import Settings, load_settings  # late: only a feed needs the service's settings

    url = load_settings(config).base_url
    if url == Settings().base_url:
        if authority is None:
            session.print_note("the feed's IDs have no owner; use --authority YOUR-DOMAIN,YEAR to own them")
        return {} if authority is None else {"authority": authority}
    from onym.server.registry.urls import make_feed_addresses

    # the same as in the service's feed
    return {
        "addresses": make_feed_addresses(url, registry),
        "authority": authority or f"{urlsplit(url).hostname or 'localhost'},2026",
    }


async def _export_registry(
    session: Session,
    format_: str,
    key: str | None,
    feed: dict[str, Any],
    *,
    registry: str,
    status: str | None,
    at: str | None,
    db: str | None,
) -> str:
    from onym.registry.iana import load_builtin_snapshot, write_table  # late: readers and writers

    when = _common.parse_time(at)
    signing_key = None if key is None else _load_signing_key(key)
    updated = when.date()
    changes: Sequence[EntryChange] = ()
    frame: bytes | None = None
    if _common.find_database(session, db) is None:
        snapshot = load_builtin_snapshot(registry)
        entries = snapshot.entries
        if at is None and snapshot.vintage is not None:
            with suppress(ValueError):  # it may name only a month or a year
                updated = date.fromisoformat(snapshot.vintage)
    else:
        async with _common.open_store(session, db) as store:
            entries = await list_entries(store, registry)
            frame = await store.get_frame(registry) if format_ == "xml" else None
            changes = await store.changes(registry, limit=FEED_LIMIT) if format_ == "atom" else ()
    if format_ == "atom":
        return render_feed(changes, registry=registry, updated=when, **feed)
    if format_ == "namespaces":
        return render_namespaces(entries, registry=registry, issued=when, key=signing_key)
    if format_ == "tables":
        return write_table(entries, registry=registry)
    part = None if status is None else Status(status)
    return render_entries(
        entries, format=format_, registry=registry, updated=updated, status=part, frame=frame
    )


@make_command("link-messages", short_help="Link the messages of a mailing list's archive.")
@click.argument("file", metavar="FILE")
@click.option("--link", metavar="URL", help="The address of a message without Archived-At: an https URL "
              "with {id} for its Message-ID.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="List the messages without linking them.")
@_common.registry_option
@_common.account_options
@_common.at_option
@_common.pass_database
async def link_messages_command(
    session: Session,
    /,
    file: str,
    link: str | None,
    dry_run: bool,
    registry: str,
    account: str | None,
    role: str | None,
    at: str | None,
    db: str | None,
) -> None:
    """Link the messages of a mailing list's archive (mbox or Atom) to the open requests that they are about.

    A message is about a request if it has the request's ID or answers such a message, if the request names it
    as its archive, or if its subject has the requested name and a word such as "scheme". The first message
    with the ID of a draft starts its list review. You can link an archive again: only new messages are added.

    \b
    Examples:
      onym registry link-messages --dry-run 2026-11.mbox
      onym registry link-messages --as iana 2026-11.mbox
      onym registry link-messages --link 'https://lists.example/{id}' old.mbox
    """
    from onym.registry.list_archive import MAX_BYTES  # late: mail and XML for this command alone

    when, data = _common.parse_time(at), read_file(file, MAX_BYTES)
    async with _common.open_store(session, db) as store:
        content, plans = await plan_archive_links(store, registry, data, link=link)
        actor = await _common.resolve_actor(store, registry, account=account, role=role)
        linked = [links.request for links in plans]
        if not dry_run:
            linked = [
                await _link_messages(store, actor, links, when, exact=at is not None) for links in plans
            ]
    records = [
        {
            "request": request.id,
            "state": str(request.state),
            "messages": [{"url": message.url, "subject": message.subject} for message in links.messages],
        }
        for request, links in zip(linked, plans, strict=True)
    ]
    session.print_record(
        {
            "messages": len(content.messages), "skipped": content.skipped, "dry_run": dry_run,
            "requests": records,
        }
    )  # fmt: skip
    if session.as_json:
        return
    for request, links in zip(linked, plans, strict=True):
        session.print_line(f"{session.paint(request.id, 'name')}  {request.state}")
        rows = [(_common.shorten_text(message.subject), message.url) for message in links.messages]
        session.print_table(rows, indent="  ")
    done = "would be linked" if dry_run else "linked"
    total = sum(len(links.messages) for links in plans)
    session.print_note(f"{len(content.messages)} messages read, {total} {done}")
    if content.skipped:
        session.print_note(
            f"{content.skipped} messages have no ID, date or address; add --link for addresses"
        )


async def _link_messages(
    store: Store, actor: Actor, links: RequestLinks, at: datetime, *, exact: bool
) -> Request:
    about = links.request
    event = Event(
        kind=EventKind.LINK_MESSAGES, registry=about.registry, request=about.id, name=about.name,
        data=links.event_data,
    )  # fmt: skip
    return get_applied_request(await apply_step(store, event, actor, at, expected=about.version, exact=exact))
