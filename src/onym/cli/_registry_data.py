"""`onym registry init|verify|backup`: a registry of one's own."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onym.cli._options import json_option
from onym.cli._output import Session
from onym.cli._registry_base import db_option, now, opened, place_of, run, working
from onym.cli._registry_text import minute
from onym.registry.records import Actor, Role
from onym.registry.registries import REGISTRIES

if TYPE_CHECKING:
    from onym.registry.store import Store

__all__ = ["backup", "init", "verify"]

#: the actor of what `init` brings in
_SEED: Final = Actor(id="iana-seed", roles=frozenset({Role.IANA}))


@click.command("init", short_help="Make a registry: database, the three registries, a first account.")
@click.option("--login", default="admin", show_default=True, metavar="LOGIN", help="The first account.")
@click.option("--email", metavar="ADDRESS", help="Its address, for notices.")
@click.option("--password-stdin", is_flag=True, help="Read its password from standard input.")
@click.option("--empty", is_flag=True, help="Without the facts that Onym ships.")
@db_option
@json_option
@click.pass_obj
def init(
    session: Session,
    /,
    login: str,
    email: str | None,
    password_stdin: bool,
    empty: bool,
    db: str | None,
) -> None:
    """Make a new registry: its tables, the shipped facts of all three registries, and a first account.

    That account holds every role in every registry and manages the others. Run again, it brings an older
    database to the present schema, and adds only what is missing.

    \b
    Examples:
      onym registry init --db registry.db
      pass show registry | onym registry init --db registry.db --login ann --password-stdin
    """
    session.command = "registry init"
    from onym.cli._registry_user import ask_password, new_account

    if place_of(session, db) is None:
        db = "onym-registry.sqlite"
        session.note(f"no database was named; this one is {db}")

    async def work() -> dict[str, Any]:
        async with opened(session, db, create=True) as store:
            there = await store.accounts.list()
            made = None
            if not there:
                password = ask_password(session, login, from_stdin=password_stdin)
                roles = {"*": frozenset({Role.IANA, Role.EXPERT, Role.IESG, Role.REGISTRANT})}
                made = new_account(login, name=login, email=email, password=password, roles=roles)
                await store.accounts.add(made)
            seeded = {} if empty else await _seed(session, store)
        return {"account": None if made is None else made.login, "registries": seeded}

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
        session.say("onym registry serve   shows it in a browser")


async def _seed(session: Session, store: Store) -> dict[str, dict[str, int]]:
    from onym.registry.iana import builtin

    found = {}
    for name in REGISTRIES:
        facts = builtin(name)
        with working(session, f"{name}: {len(facts.entries)} entries"):
            report = await store.import_entries(
                name, facts.entries, _SEED, now(), source=f"{facts.source} {facts.vintage or ''}".strip()
            )
        found[name] = {"added": report.added, "same": report.same}
    return found


@click.command("verify", short_help="Check the log's hash chain, and that the registry is what it says.")
@db_option
@json_option
@click.pass_obj
def verify(session: Session, /, db: str | None) -> None:
    """Check that no record of the log was changed, and that entries and requests are what the log makes.

    \b
    Example:
      onym registry verify --db registry.db
    """
    session.command = "registry verify"

    async def work() -> Any:
        async with opened(session, db) as store:
            with working(session, "reading the log"):
                return await store.verify()

    found = run(work())
    session.record(
        {
            "ok": True,
            "records": found.records,
            "entries": found.entries,
            "requests": found.requests,
            "head": {"number": found.head.number, "digest": found.head.digest, "at": _iso(found.head.at)},
        }
    )
    session.say(f"{session.paint('ok', 'good')}  no errors: the log holds, and the registry is what it makes")
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


@click.command("backup", short_help="Copy the database into a new file, while it is in use.")
@click.argument("file", type=click.Path(dir_okay=False))
@db_option
@json_option
@click.pass_obj
def backup(session: Session, /, file: str, db: str | None) -> None:
    """Copy the database into FILE, which must not be there. Work goes on meanwhile.

    \b
    Example:
      onym registry backup registry-2026-11-21.db
    """
    session.command = "registry backup"

    async def work() -> None:
        async with opened(session, db) as store:
            with working(session, f"copying into {file}"):
                await store.backup(Path(file))

    run(work())
    session.record({"file": file, "octets": Path(file).stat().st_size})
    session.say(f"wrote {file}")
