"""`onym registry init|verify|backup|restore`: a registry of one's own."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onym.cli._options import json_option
from onym.cli._output import Session
from onym.cli._registry_base import (
    HERE,
    all_entries,
    counted,
    db_option,
    needed_place,
    now,
    opened,
    place_of,
    run,
    working,
)
from onym.cli._registry_text import minute
from onym.errors import UsageError
from onym.registry.records import Actor, Role
from onym.registry.registries import REGISTRIES

if TYPE_CHECKING:
    from onym.registry.accounts import Account
    from onym.registry.store import Store
    from onym.registry.store._types import Verified

__all__ = ["backup", "init", "restore", "verify"]

#: the actor of what `init` brings in
_SEED: Final = Actor(id="iana-seed", roles=frozenset({Role.IANA}))


@click.command("init", short_help="Make a registry: database, the three registries, a first account.")
@click.option("--login", metavar="LOGIN", help="The first account.  [default: admin]")
@click.option("--email", metavar="ADDRESS", help="Its address, for notices.")
@click.option("--password-stdin", is_flag=True, help="Read its password from standard input.")
@click.option("--empty", is_flag=True, help="Without the facts that Onym ships.")
@db_option
@json_option
@click.pass_obj
def init(
    session: Session,
    /,
    login: str | None,
    email: str | None,
    password_stdin: bool,
    empty: bool,
    db: str | None,
) -> None:
    """Make a new registry: its tables, the shipped facts of all three registries, and a first account.

    That account holds every role in every registry and manages the others. Run again, it brings an older
    database to the present schema, and leaves registries that have entries as they are.

    \b
    Examples:
      onym registry init --db registry.db
      pass show registry | onym registry init --db registry.db --login ann --password-stdin
    """
    session.command = "registry init"
    from onym.cli._registry_user import ask_password, new_account

    place = place_of(session, db)
    if place is None:
        place = HERE
        session.note(f"no database was named; this one is {place}")

    named = login or "admin"

    def first() -> Account:
        password = ask_password(session, named, from_stdin=password_stdin)
        roles = {"*": frozenset({Role.IANA, Role.EXPERT, Role.IESG, Role.REGISTRANT})}
        return new_account(named, name=named, email=email, password=password, roles=roles)

    # asked before anything is made: a password that is refused leaves no half of a registry
    made = None if "://" in place or Path(place).exists() else first()

    async def work() -> dict[str, Any]:
        async with opened(session, place, create=True) as store:
            there = bool(await store.accounts.list())
            if there and (login is not None or email is not None or password_stdin):
                raise _has_accounts()
            account = None if there else made or first()
            if account is not None:
                await store.accounts.add(account)
            seeded = {} if empty else await _seed(session, store)
        return {"account": None if account is None else account.login, "registries": seeded}

    record = run(work())
    session.record(record)
    rows = [
        (name, f"{each['added']} added, {each['same']} there already")
        for name, each in record["registries"].items()
    ]
    if record["account"] is not None:
        rows.append(("account", f"{record['account']} (every role)"))
    session.table(rows, styles=("dim",))
    if not session.as_json:
        option = f" --db {db}" if db is not None else ""
        if record["account"] is not None and email is None:
            call = f"onym registry user email {record['account']} ADDRESS{option}"
            session.note(f"no notice reaches {record['account']}: {call}")
        session.note(f"next: onym registry serve{option}; onym registry user add LOGIN{option}")


def _has_accounts() -> UsageError:
    return UsageError(
        "this registry has accounts already; init makes the first one alone",
        code="usage.command-line",
        hint="onym registry user add LOGIN, email LOGIN ADDRESS, password LOGIN; init without these options "
        "brings the database up to date",
    )


async def _seed(session: Session, store: Store) -> dict[str, dict[str, int]]:
    """The shipped facts, into registries that have no entry yet: those in use know better."""
    from onym.registry.iana import builtin

    found = {}
    for name in REGISTRIES:
        there = await all_entries(store, name)
        if there:
            found[name] = {"added": 0, "same": len(there)}
            continue
        facts = builtin(name)
        source = f"{facts.source} {facts.vintage or ''}".strip()
        with counted(session, name, len(facts.entries)) as tell:
            report = await store.import_entries(
                name, facts.entries, _SEED, now(), source=source, progress=tell
            )
        found[name] = {"added": report.added, "same": report.same}
    return found


@click.command("verify", short_help="Check the log's hash chain, and that the registry is what it says.")
@click.option(
    "--rebuild", is_flag=True, help="Make entries, requests and the search index anew from the log."
)
@click.option(
    "--head",
    metavar="NUMBER:DIGEST",
    help="A head that was written down earlier: is the log still the same up to there?",
)
@db_option
@json_option
@click.pass_obj
def verify(session: Session, /, rebuild: bool, head: str | None, db: str | None) -> None:
    """Check that no record of the log was changed, and that entries and requests are what the log makes.

    With --rebuild, what follows from the log is made anew where it differs. The log itself is never
    changed: where its own chain is broken, only a backup helps.

    The chain alone does not show that records are missing at its end, or that it was replaced as a whole.
    Keep the head that this prints (or the service's /api/v1/health) elsewhere, and give it with --head.

    \b
    Examples:
      onym registry verify --db registry.db
      onym registry verify --rebuild
      onym registry verify --head 1204:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    """
    session.command = "registry verify"
    anchor = None if head is None else _anchor(head)

    async def work() -> Verified:
        async with opened(session, db) as store:
            with working(session, "reading the log"):
                if rebuild:
                    await store.rebuild()
                if anchor is not None:
                    await store.check_anchor(*anchor)
                return await store.verify()

    _tell_verified(session, run(work()), "rebuilt" if rebuild else "ok")


def _anchor(text: str) -> tuple[int, str]:
    number, _, digest = text.partition(":")
    if not re.fullmatch("[0-9]{1,15}", number) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise UsageError(
            "--head is written NUMBER:DIGEST", code="usage.head", hint="as `verify` prints the head"
        )
    return int(number), digest


def _tell_verified(session: Session, found: Verified, word: str) -> None:
    session.record(
        {
            "ok": True,
            "done": word,
            "records": found.records,
            "entries": found.entries,
            "requests": found.requests,
            "head": {"number": found.head.number, "digest": found.head.digest, "at": _iso(found.head.at)},
        }
    )
    session.say(f"{session.paint(word, 'good')}  no errors: the log holds, and the registry is what it makes")
    session.table(
        [
            ("records", str(found.records)),
            ("entries", str(found.entries)),
            ("requests", str(found.requests)),
            ("head", f"{found.head.number} {found.head.digest}"),
            ("last", "-" if found.head.at is None else minute(found.head.at)),
        ],
        indent="  ",
        styles=("dim",),
    )


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


@click.command("backup", short_help="Copy the database into a file, while it is in use.")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--portable", is_flag=True, help="JSON Lines, which any database takes back.")
@db_option
@json_option
@click.pass_obj
def backup(session: Session, /, file: str, portable: bool, db: str | None) -> None:
    """Copy the database into FILE, which is replaced once the copy is whole. Work goes on meanwhile.

    SQLite gives a database that can be used as it is, PostgreSQL gives JSON Lines. Password hashes are in
    it: keep it as you keep the database.

    \b
    Examples:
      onym registry backup registry-2026-11-21.db
      onym registry backup --portable registry-2026-11-21.jsonl
    """
    session.command = "registry backup"

    async def work() -> None:
        async with opened(session, db) as store:
            with working(session, f"copying into {file}"):
                await store.backup(Path(file), portable=portable)

    run(work())
    session.record({"file": file, "octets": Path(file).stat().st_size})
    session.say(f"wrote {file}")


@click.command("restore", short_help="Read a backup into an empty database.")
@click.argument("file", type=click.Path(dir_okay=False, exists=True))
@db_option
@json_option
@click.pass_obj
def restore(session: Session, /, file: str, db: str | None) -> None:
    """Read the backup FILE, of either form, into the database of --db, which is made where there is none.

    The log's chain is followed while it is read. A database that holds a registry already is refused, and
    stays as it is.

    \b
    Examples:
      onym registry restore registry-2026-11-21.db --db new.db
      onym registry restore registry-2026-11-21.jsonl --db postgresql://registry@/registry
    """
    session.command = "registry restore"
    place = needed_place(session, db)
    from onym.registry.store import restore as restored  # late: SQLAlchemy takes longer than all the rest

    async def work() -> Verified:
        with working(session, f"reading {file}"):
            return await restored(Path(file), place)

    _tell_verified(session, run(work()), "restored")
