"""`onym registry import|export`: a registry from files, and into them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onym.cli import exit_codes
from onym.cli._atomic import AtomicFile
from onym.cli._options import json_option
from onym.cli._output import Session, is_terminal
from onym.cli._registry_base import (
    account_options,
    acting,
    all_entries,
    at_option,
    counted,
    db_option,
    moment,
    opened,
    place_of,
    registry_option,
    run,
)
from onym.cli._text import harmless
from onym.errors import RefusalError, StoreError, UsageError
from onym.registry.records import IANA_CLOCK, Actor, Entry, Event, EventKind, Status

if TYPE_CHECKING:
    from onym.registry.iana import Snapshot
    from onym.registry.store import ImportReport, Store

__all__ = ["export", "import_"]

_FORMATS: Final = ("xml", "csv", "csv-2015", "csv-2022", "text", "json", "atom", "namespaces", "tables")
#: rows of irregularities that are shown without --json
_SHOWN: Final = 20


@click.command("import", short_help="Take in a published registry: CSV, XML, JSON, text.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--format", "format_", help="How to read it. Default: as the file itself shows.")
@click.option(
    "--contacts",
    type=click.Path(dir_okay=False),
    help="A file of contacts: [[id, name, organisation, URI, date], ...]",
)
@click.option("--dry-run", is_flag=True, help="Read and report; change nothing.")
@registry_option
@account_options
@at_option
@db_option
@json_option
@click.pass_context
def import_(
    ctx: click.Context,
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
    """Take the entries of FILE... into a registry.

    A file is taken in whole, but for rows that the registry refuses: with one of those the exit code is 11.
    A file that cannot be read to its end changes nothing. Irregular rows are kept and reported. What the
    registry has and a file lacks stays as it is, and so does who has a say in an entry that is there: of a
    JSON export, only new names bring their registrants. With --dry-run and without a database, the file is
    compared with the facts that Onym ships.

    \b
    Examples:
      onym registry import --dry-run uri-schemes-1.csv
      onym registry import --account ann uri-schemes.xml
    """
    session = ctx.find_object(Session)
    assert session is not None  # noqa: S101 - the group always makes one
    session.command = "registry import"
    when = moment(at)
    snapshots = [_read(file, format_, registry, contacts) for file in files]

    async def work() -> list[dict[str, Any]]:
        if place_of(session, db) is None and dry_run:
            return [_compared(each, _shipped(registry), when) for each in snapshots]
        async with opened(session, db) as store:
            if dry_run:
                there = await all_entries(store, registry)
                return [_compared(each, there, when) for each in snapshots]
            actor = await acting(store, registry, account=account, role=role)
            return [await _take(session, store, each, actor, when) for each in snapshots]

    found = run(work())
    session.record({"registry": registry, "dry_run": dry_run, "files": found})
    for record in found:
        _tell_import(session, record, dry_run=dry_run)
    if any(record["refused"] for record in found):
        ctx.exit(exit_codes.REGISTRY)


def _read(file: str, format_: str | None, registry: str, contacts: str | None) -> Snapshot:
    from onym.registry.iana import read

    people = None if contacts is None else _octets(contacts)
    return read(_octets(file), format=format_, registry=registry, contacts=people, source=Path(file).name)


def _octets(file: str) -> bytes:
    """The octets of a file, one more than may be imported at most. Raises UsageError."""
    from onym.registry.iana._types import MAX_BYTES

    try:
        if file == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with Path(file).open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}", code="usage.input-file") from None


def _shipped(registry: str) -> tuple[Entry, ...]:
    from onym.registry.iana import builtin

    return builtin(registry).entries


def _compared(snapshot: Snapshot, there: Sequence[Entry], at: datetime) -> dict[str, Any]:
    """What an import would change: each row goes to the engine, as it would then."""
    from onym.registry.iana import as_imported, filled

    before = {entry.name: entry for entry in there}
    record = _import_record(snapshot)
    names: dict[str, list[str]] = {"added": [], "changed": [], "same": []}
    for row in filled(snapshot, there):
        entry, left_out = as_imported(row, before.get(row.name))
        if left_out is not None:
            record["irregular"].append(_refused(entry.name, left_out))
        try:
            names[_fate(entry, before.get(entry.name), at)].append(entry.name)
        except (RefusalError, StoreError) as error:
            record["refused"] += 1
            record["irregular"].append(_refused(entry.name, str(error)))
    record |= {fate: len(each) for fate, each in names.items()}
    return record | {"names": {fate: names[fate] for fate in ("added", "changed")}}


def _fate(entry: Entry, old: Entry | None, at: datetime) -> str:
    """Would the row be added, be changed or stay the same? Raises RefusalError and StoreError."""
    from onym.registry.codec import to_data
    from onym.registry.engine import decide

    event = Event(
        kind=EventKind.IMPORT, registry=entry.registry, name=entry.name, data={"entry": to_data(entry)}
    )
    new = decide(event, IANA_CLOCK, at, request=None, entry=old).entry
    if old is None or new is None:
        return "added"
    return "same" if replace(new, version=old.version, updated=old.updated) == old else "changed"


def _refused(name: str, reason: str) -> dict[str, Any]:
    return {"name": name, "code": "refused", "reason": reason, "line": None}


def _import_record(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "source": snapshot.source,
        "vintage": snapshot.vintage,
        "entries": len(snapshot.entries),
        "refused": 0,
        "irregular": [
            {"name": each.name, "code": each.code, "reason": each.reason, "line": each.line}
            for each in snapshot.irregular
        ],
    }


async def _take(
    session: Session, store: Store, snapshot: Snapshot, actor: Actor, at: datetime
) -> dict[str, Any]:
    from onym.registry.iana import filled

    rows = filled(snapshot, await all_entries(store, snapshot.registry))
    with counted(session, snapshot.source, len(rows)) as tell:
        report: ImportReport = await store.import_entries(
            snapshot.registry, rows, actor, at, source=snapshot.source, progress=tell
        )
    record = _import_record(snapshot)
    record["irregular"] += [_refused(each.name, each.reason) for each in report.irregular]
    record["refused"] = sum(not each.taken for each in report.irregular)
    record |= {"added": report.added, "changed": report.changed, "same": report.same}
    return record | {"absent": list(report.absent)}


def _tell_import(session: Session, record: dict[str, Any], *, dry_run: bool) -> None:
    if session.as_json:
        return
    would = "would be " if dry_run else ""
    absent = record.get("absent") or ()
    counts = (
        f"{record['added']} {would}added, {record['changed']} {would}changed, {record['same']} as they were"
    )
    session.say(f"{session.paint(record['source'], 'name')}  {record['entries']} entries: {counts}")
    if absent:
        session.note(f"{len(absent)} entries here are not in {record['source']}: they stay as they are")
    if record["refused"]:
        rows_were = "1 row was" if record["refused"] == 1 else f"{record['refused']} rows were"
        session.note(f"{rows_were} refused, and not taken in: the reasons stand below")
    irregular = record["irregular"]
    if irregular:
        session.say(f"\n{len(irregular)} irregular rows")
        rows = [(str(each["line"] or ""), each["name"], each["reason"]) for each in irregular[:_SHOWN]]
        session.table(rows, indent="  ", styles=("dim", "name"))
        if len(irregular) > _SHOWN:
            session.note(f"{len(irregular) - _SHOWN} more; --json has all of them")


@click.command("export", short_help="Write a registry: XML, CSV, text, JSON, Atom, namespaces.")
@click.option("--format", "format_", type=click.Choice(_FORMATS), default="xml", show_default=True,
              help="How to write it.")  # fmt: skip
@click.option("--status", type=click.Choice([str(each) for each in Status]), help="The part, for csv-2015.")
@click.option("-o", "--output", type=click.Path(dir_okay=False),
              help="The file; it is there whole or not at all.")  # fmt: skip
@click.option("--sign-key", metavar="FILE", help="A private key (JWK) that signs the namespaces file.")
@click.option("--authority", metavar="DOMAIN,YEAR",
              help="Who mints a feed's ids (RFC 4151). Default: the settings' base_url.")  # fmt: skip
@click.option(
    "--config", metavar="FILE", help="The service's settings, for atom. Default: ONYM_REGISTRY_CONFIG."
)
@registry_option
@at_option
@db_option
@json_option
@click.pass_obj
def export(
    session: Session,
    /,
    format_: str,
    output: str | None,
    sign_key: str | None,
    authority: str | None,
    config: str | None,
    **given: Any,
) -> None:
    """Write a registry in a format of IANA's, as JSON, as an Atom feed of its changes, or for a resolver.

    Without a database the shipped facts are written, with their own date. With --json and -o, what was
    written is said as JSON.

    \b
    Examples:
      onym registry export --format csv -o uri-schemes.csv
      onym registry export -r ai-namespaces --format namespaces --sign-key root.jwk -o namespaces.jws
      onym registry export --db registry.db --format atom --authority registry.example,2026
    """
    session.command = "registry export"
    if sign_key is not None and format_ != "namespaces":
        raise UsageError("--sign-key goes with --format namespaces", code="usage.command-line")
    if session.as_json and output is None:
        raise UsageError(
            "--json needs -o: the registry itself goes to standard output", code="usage.command-line"
        )
    if given["status"] is not None and format_ != "csv-2015":
        raise UsageError(
            "--status goes with --format csv-2015, which has a file for each", code="usage.command-line"
        )
    if format_ != "atom" and (authority or config):
        raise UsageError("--authority and --config go with --format atom", code="usage.command-line")
    feed = _feed_of(session, authority, config) if format_ == "atom" else {}
    text = run(_exported(session, format_, sign_key, feed, **given))
    if output is None:
        # what registrants wrote may hold a terminal's own commands
        sys.stdout.write(harmless(text) if is_terminal(sys.stdout) else text)
        return
    with AtomicFile(Path(output)) as file:
        file.write(text)
    session.record(
        {"file": output, "format": format_, "registry": given["registry"], "characters": len(text)}
    )
    session.say(f"wrote {output}")


def _feed_of(session: Session, authority: str | None, config: str | None) -> dict[str, Any]:
    """Who mints a feed's ids and where its links lead: the option, then the service's settings."""
    from urllib.parse import urlsplit

    from onym.server.settings import Settings, load_settings  # late: the service's, for its feed alone

    url = load_settings(config).base_url
    if url == Settings().base_url:
        if authority is None:
            session.note("the feed's ids are nobody's: --authority YOUR-DOMAIN,YEAR makes them yours")
        return {} if authority is None else {"authority": authority}
    # as in the service's own feed
    return {"origin": url, "authority": authority or f"{urlsplit(url).hostname or 'localhost'},2026"}


async def _exported(
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
    from onym.cli._registry_export import FEED, Export, written

    what = Export(
        registry=registry,
        format=format_,
        at=moment(at),
        key=key,
        entries=(),
        status=None if status is None else Status(status),
        **feed,
    )
    if place_of(session, db) is None:
        facts = _facts(registry)
        return written(replace(what, entries=facts.entries, dated=None if at else _day(facts.vintage)))
    async with opened(session, db) as store:
        entries = await all_entries(store, registry)
        changes = await store.changes(registry, limit=FEED) if format_ == "atom" else ()
    return written(replace(what, entries=entries, changes=changes))


def _day(vintage: str | None) -> date | None:
    """The day of a vintage; those that name only a month or a year have none."""
    try:
        return None if vintage is None else date.fromisoformat(vintage)
    except ValueError:
        return None


def _facts(registry: str) -> Snapshot:
    from onym.registry.iana import builtin

    return builtin(registry)
