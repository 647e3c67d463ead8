"""`onym registry init`, `verify`, `audit`, `backup`, `restore`, `serve` and `webhook`: operate a registry."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onym._lazy import require_extra
from onym.accounts.records import ALL_REALMS, AuditHead
from onym.cli import exit_codes
from onym.cli._commands import OrderedGroup, confirm_action, exit_with, make_command, pass_session, yes_option
from onym.cli._errors import complete_command
from onym.cli._output import Session, select_fields
from onym.cli.commands.registry import _common
from onym.cli.commands.registry.user import ask_password, describe_new_account, make_account
from onym.errors import UsageError
from onym.net.hosts import is_loopback
from onym.registry.records import Actor, Event, EventKind, Role
from onym.registry.registries import REGISTRIES, enter_catalog
from onym.registry.service import list_entries

if TYPE_CHECKING:
    from onym.accounts.records import Account
    from onym.registry.definitions import Definition
    from onym.registry.store import Store, Verified
    from onym.server.settings import Settings

#: the actor of the entries that `init_command` imports
_SEED: Final = Actor(id="iana-seed", roles=frozenset({Role.IANA}))


@make_command("init", short_help="Create a registry with the shipped data and an account.")
@click.option("--login", metavar="LOGIN", help="The first account.  [default: admin]")
@click.option("--email", metavar="ADDRESS", help="The account's e-mail address, for notices.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--empty", is_flag=True, help="Do not import the data that Onym ships.")
@click.option("--definition", type=click.Path(dir_okay=False, exists=True), metavar="FILE",
              help="Define your own registries (TOML).")  # fmt: skip
@_common.pass_database
async def init_command(
    session: Session,
    /,
    login: str | None,
    email: str | None,
    password_stdin: bool,
    empty: bool,
    definition: str | None,
    db: str | None,
) -> None:
    """Create a registry with the shipped data of all three registries and a first account.

    With --definition it has the registries of FILE instead, with your fields, policies and words. The
    account has every role in every registry, and manages other accounts. If the database exists, `init`
    updates its schema and leaves registries that have entries as they are.

    \b
    Examples:
      onym registry init --db registry.db
      pass show registry | onym registry init --login ann --password-stdin
      onym registry init --db names.db --definition company.toml
    """
    defined = None if definition is None else _load_definition(definition)
    place = _common.find_database(session, db)
    if place is None:
        place = _common.DEFAULT_DATABASE
        session.print_note(f"no database was named; using {place}")

    def make_first() -> Account:
        name = login or "admin"
        password = ask_password(session, name, from_stdin=password_stdin)
        roles = {"*": frozenset({Role.IANA, Role.EXPERT, Role.IESG, Role.REGISTRANT})}
        return make_account(name, name=name, email=email, password=password, roles=roles)

    # before anything is created: a rejected password must not leave half of a registry
    made = None if "://" in place or Path(place).exists() else make_first()  # noqa: ASYNC240 - the only task
    async with _common.open_store(session, place, create=True) as store:
        has_accounts = bool(await store.accounts.list())
        if has_accounts and (login is not None or email is not None or password_stdin):
            raise UsageError(
                "this registry has accounts already, and init creates only the first one",
                code="usage.command-line",
                hint="use onym registry user add, email and password; init without these options "
                "updates the database",
            )
        account = None if has_accounts else made or make_first()
        if account is not None:
            act = _common.make_audit_record("account.add", describe_new_account(account))
            await store.accounts.add(account, audit=act)
        if defined is not None:
            await _define_registries(store, defined)
        enter_catalog(store.catalog)
        seeded = {} if empty else await _seed_registries(session, store)
        missing_index = store.missing_index
    session.print_record({"account": None if account is None else account.login, "registries": seeded})
    rows = [(name, f"{counts['added']} added, {counts['same']} unchanged") for name, counts in seeded.items()]
    if account is not None:
        rows.append(("account", f"{account.login} (every role)"))
    session.print_table(rows, styles=("dim",))
    if not session.as_json:
        if missing_index is not None:
            session.print_note(f"{missing_index.message}. {missing_index.hint}")
        if account is not None and email is None:
            command = complete_command(session, f"onym registry user email {account.login} ADDRESS")
            session.print_note(f"{account.login} has no address for notices; run {command}")
        commands = ("onym registry serve", "onym registry user add LOGIN")
        following = "; ".join(complete_command(session, command) for command in commands)
        session.print_note(f"next: {following}")


@make_command("define", short_help="Define your own registries from a TOML file.")
@click.argument("file", type=click.Path(dir_okay=False, exists=True))
@click.option("--dry-run", is_flag=True, help="Only check the file.")
@_common.pass_database
async def define_command(session: Session, /, file: str, dry_run: bool, db: str | None) -> None:
    """Define registries, fields, policies, roles and words from FILE, or change them.

    The log records the whole definition, so that `verify` decides old requests by the old one. A definition
    keeps the registries that are in force, and their procedures.

    \b
    Examples:
      onym registry define --dry-run company.toml
      onym registry define company.toml --db names.db
    """
    defined = _load_definition(file)
    if not dry_run:
        async with _common.open_store(session, db) as store:
            await _define_registries(store, defined)
    rows = defined.catalog.registries
    word, digest = "valid" if dry_run else "defined", defined.catalog.digest
    session.print_record({"ok": True, "done": word, "digest": digest, "registries": list(rows)})
    session.print_line(f"{session.paint(word, 'good')}  {defined.catalog.title} ({digest[:12]})")
    session.print_table([(row.id, row.title) for row in rows.values()], indent="  ", styles=("name",))


def _load_definition(file: str) -> Definition:
    from onym.registry.definitions import load_definition  # late: few commands need it

    return load_definition(Path(file))


async def _define_registries(store: Store, defined: Definition) -> None:
    """Record the definition, unless it is in force already."""
    if store.catalog.digest != defined.catalog.digest:
        event = Event(
            kind=EventKind.DEFINE, registry=ALL_REALMS, data={"definition": dict(defined.definition)}
        )
        await store.apply(event, _SEED, _common.utc_now())
        await store.audit.write(_common.make_audit_record("registry.define", defined.catalog.digest))


async def _seed_registries(session: Session, store: Store) -> dict[str, dict[str, int]]:
    """Import the shipped data into registries that have no entries yet."""
    from onym.registry.iana import load_builtin_snapshot

    counts = {}
    for name in REGISTRIES:
        if REGISTRIES[name].is_defined:
            continue
        present = await list_entries(store, name)
        if present:
            counts[name] = {"added": 0, "same": len(present)}
            continue
        snapshot = load_builtin_snapshot(name)
        source = f"{snapshot.source} {snapshot.vintage or ''}".strip()
        with _common.show_counter(session, name, len(snapshot.entries)) as advance:
            report = await store.import_entries(
                name, snapshot.entries, _SEED, _common.utc_now(), source=source, progress=advance
            )
        counts[name] = {"added": report.added, "same": report.same}
    return counts


@make_command("verify", short_help="Verify the log's hash chain and the registry's content.")
@click.option("--rebuild", is_flag=True, help="Rebuild entries, requests and the search index from the log.")
@click.option(
    "--head", metavar="NUMBER:DIGEST", help="A head that you saved earlier; the log must still contain it."
)
@_common.pass_database
async def verify_command(session: Session, /, rebuild: bool, head: str | None, db: str | None) -> None:
    """Verify the log's hash chain, and that entries and requests follow from the log.

    With --rebuild, content that differs from the log is rebuilt. The log itself is never changed; if its
    chain is broken, restore a backup.

    The chain does not show that records are missing at the end, or that the complete log was replaced. Save
    the head that this command (or the service's /api/v1/health) prints in another place, and pass it with
    --head.

    \b
    Examples:
      onym registry verify --db registry.db
      onym registry verify --rebuild
      onym registry verify --head "$(cat head.txt)"
    """
    anchor = None if head is None else _parse_anchor(head)
    async with _common.open_store(session, db) as store:
        with _common.show_status(session, "reading the log"):
            if rebuild:
                await store.rebuild()
                await store.audit.write(_common.make_audit_record("registry.rebuild", "entries and requests"))
            if anchor is not None:
                await store.check_anchor(*anchor)
            await store.audit.verify()
            verified = await store.verify()
    _print_verified(session, verified, "rebuilt" if rebuild else "ok")


def _parse_anchor(text: str) -> tuple[int, str]:
    number, _, digest = text.partition(":")
    if not re.fullmatch("[0-9]{1,15}", number) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise UsageError(
            f"--head {text} is not NUMBER:DIGEST",
            code="usage.head",
            hint="copy the head that onym registry verify prints",
        )
    return int(number), digest


def _print_verified(session: Session, verified: Verified, word: str) -> None:
    counts, head = select_fields(verified, "records", "entries", "requests"), verified.head
    at = None if head.at is None else head.at.astimezone(UTC).isoformat()
    session.print_record(
        {"ok": True, "done": word, **counts, "head": {**select_fields(head, "number", "digest"), "at": at}}
    )
    session.print_line(
        f"{session.paint(word, 'good')}  no errors: the log is valid, and the registry follows from it"
    )
    rows = [
        *((name, str(count)) for name, count in counts.items()),
        ("head", f"{head.number} {head.digest}"),
        ("last", "-" if head.at is None else _common.format_minute(head.at)),
    ]
    session.print_table(rows, indent="  ", styles=("dim",))


@click.group(
    "audit", cls=OrderedGroup, invoke_without_command=True, short_help="List or verify the audit log."
)
@click.option("--account", metavar="LOGIN", help="Only acts of this account.")
@click.option("--action", metavar="ACTION", help="Only this action, such as account.roles.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=50,
    show_default=True,
    help="Records to list.",
)
@click.option("--after", metavar="CURSOR", help="Continue after `next` of an earlier list (--json).")
@_common.pass_database
async def audit_command(
    session: Session,
    /,
    account: str | None,
    action: str | None,
    limit: int,
    after: str | None,
    db: str | None,
) -> None:
    """List the audit log, the newest record first: sign-ins, and what was done to accounts and tokens.

    An act on the command line shows the user of the operating system, as "command line, USER". The acts on
    requests and entries are in the registry's own log too.

    \b
    Examples:
      onym registry audit
      onym registry audit --action account.roles --limit 10
      onym registry audit verify
    """
    if session.context is not None and session.context.invoked_subcommand is not None:
        return
    async with _common.open_store(session, db) as store:
        acting = None if account is None else await find_audit_account(store, account)
        page = await store.audit.page(account=acting, action=action, limit=limit, after=after)
        logins = await _common.list_logins(store)
    session.print_record(
        {
            "records": [
                {**asdict(record), "at": record.at.isoformat(), "login": logins.get(record.account or "")}
                for record in page.items
            ],
            "next": page.next,
        }
    )
    rows = [
        (
            _common.format_minute(record.at),
            logins.get(record.account or "", record.account or "anonymous"),
            record.action,
            record.subject or "",
            record.outcome,
            "" if record.address == record.account else record.address or "",
        )
        for record in page.items
    ]
    session.print_table(rows, styles=("dim", "name"))
    if not rows and not session.as_json:
        session.print_note("the audit log has no such records")


async def find_audit_account(store: Store, login: str) -> str:
    """Return the ID of a login. Users of the command line have none, and are found by their name."""
    if login.startswith("command line, "):
        return login
    return (await _common.get_account(store, login)).id


@audit_command.command("verify", short_help="Verify the audit log's hash chain.")
@click.option("--head", metavar="NUMBER:DIGEST", help="A head that you saved; the log must still contain it.")
@_common.pass_store
async def audit_verify_command(session: Session, store: Store, /, head: str | None) -> None:
    """Verify that no record of the audit log was changed or removed.

    The chain does not show that records are missing at the end. Save the head that this command prints in
    another place, and pass it with --head.

    \b
    Example:
      onym registry audit verify --db registry.db
    """
    anchor = None if head is None else _parse_anchor(head)
    if anchor is not None:
        await store.audit.check_anchor(AuditHead(number=anchor[0], digest=anchor[1]))
    found = await store.audit.verify()
    session.print_record({"ok": True, **asdict(found)})
    session.print_line(f"{session.paint('ok', 'good')}  no errors: the audit log is valid")
    session.print_table(
        [("records", str(found.records)), ("head", f"{found.number}:{found.digest}")],
        indent="  ",
        styles=("dim",),
    )


@make_command("redact", short_help="Remove personal data from the log.")
@click.option("--text", metavar="TEXT", help="The text to remove. Default: a line of standard input.")
@click.option("--reason", metavar="TEXT", required=True, help="Why, without the data; it stays in the log.")
@click.option("--dry-run", is_flag=True, help="List the lines without removing them.")
@yes_option
@_common.registry_option
@_common.account_options
@_common.pass_store
async def redact_command(
    session: Session,
    store: Store,
    /,
    text: str | None,
    reason: str,
    dry_run: bool,
    yes: bool,
    registry: str,
    account: str | None,
    role: str | None,
) -> None:
    """Remove every line with a person's name or address from the log, and from all that follows from it.

    The log's digests stay valid, and a record lists the removed lines, so that `verify` proves that only
    they were removed. Backups, mail that was sent and copies of the data keep the text.

    \b
    Examples:
      onym registry redact --dry-run --reason "ticket 7" --text ann@example.net
      pass show gone | onym registry redact --reason "ticket 7" --yes
    """
    wanted = sys.stdin.readline() if text is None else text
    if wanted.strip() and wanted.strip().casefold() in reason.casefold():
        raise UsageError(
            "the reason contains the text that is removed",
            code="usage.reason",
            hint="give a reason without the data, such as a number of your ticket",
        )
    if dry_run:
        found = await store.find_redaction(registry, wanted)
    else:
        actor = await _common.resolve_actor(store, registry, account=account, role=role)
        found = await store.find_redaction(registry, wanted)
        lines = sum(map(len, found.places.values()))
        confirm_action(session, f"Remove {lines} lines from the log of {registry}?", yes=yes)
        found = await store.redact(
            registry,
            wanted,
            actor,
            _common.utc_now(),
            reason=reason,
            audit=_common.make_audit_record("registry.redact", f"{registry}: {reason}", account=actor.id),
        )
    session.print_record(
        {
            "record": found.number,
            "removed": {str(number): list(places) for number, places in found.places.items()},
        }
    )
    lines = sum(map(len, found.places.values()))
    verb = "would be removed from" if dry_run else "removed from"
    session.print_line(f"{lines} lines {verb} {len(found.places)} records")
    rows = [(str(number), place) for number, places in found.places.items() for place in places]
    session.print_table(rows, indent="  ", styles=("dim",))
    if not dry_run and not session.as_json:
        session.print_note("backups and sent mail keep the text; replace old backups")


@make_command("backup", short_help="Copy the database to a file, while it is in use.")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--portable", is_flag=True, help="Write JSON Lines, which every database can restore.")
@_common.pass_store
async def backup_command(session: Session, store: Store, /, file: str, portable: bool) -> None:
    """Copy the database to FILE, while it is in use. The file is replaced when the copy is complete.

    SQLite writes a usable database, PostgreSQL writes JSON Lines. The copy contains password hashes: protect
    it like the database.

    \b
    Examples:
      onym registry backup registry-2026-11-21.db
      onym registry backup --portable registry-2026-11-21.jsonl
    """
    with _common.show_status(session, f"copying into {file}"):
        await store.backup(Path(file), portable=portable)
        await store.audit.write(_common.make_audit_record("registry.backup", Path(file).name))
    size = Path(file).stat().st_size  # noqa: ASYNC240 - the only task
    session.print_record({"file": file, "octets": size})
    session.print_line(f"wrote {file}")


@make_command("restore", short_help="Restore a backup into an empty database.")
@click.argument("file", type=click.Path(dir_okay=False, exists=True))
@yes_option
@_common.pass_database
async def restore_command(session: Session, /, file: str, yes: bool, db: str | None) -> None:
    """Restore the backup FILE into the database of --db, which is created if necessary.

    The log's hash chain is verified. A database that contains a registry is rejected and stays unchanged.

    \b
    Examples:
      onym registry restore registry-2026-11-21.db --db new.db
      onym registry restore registry.jsonl --db postgresql://registry@/registry
    """
    place = _common.require_database(session, db)
    confirm_action(session, f"Restore {file} into {place}?", yes=yes)
    from onym.registry.store import restore  # late: SQLAlchemy takes most of the import time

    with _common.show_status(session, f"reading {file}"):
        verified = await restore(Path(file), place)
        async with _common.open_store(session, place) as store:
            await store.audit.write(_common.make_audit_record("registry.restore", Path(file).name))
    _print_verified(session, verified, "restored")


@make_command("serve", short_help="Serve the registry's web pages and API.")
@click.option("--host", metavar="ADDRESS", help="The address to listen on (127.0.0.1, or the settings).")
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="PORT", help="The port. Default: 8000, or the settings."
)
@click.option("--base-url", metavar="URL",
              help="The public origin: https://registry.example. Required unless on loopback.")  # fmt: skip
@click.option("--config", metavar="FILE", help="The settings file (TOML). Default: ONYM_REGISTRY_CONFIG.")
@_common.db_option
@pass_session
def serve_command(session: Session, /, db: str | None, config: str | None, **options: Any) -> None:
    """Serve the registry's web pages and API, until Ctrl-C.

    The settings (mail, OpenID Connect, the public URL) come from --config, ONYM_REGISTRY_* variables and
    these options; later ones override earlier ones. The service uses plain HTTP: put a TLS proxy in front of
    it.

    \b
    Examples:
      onym registry serve --db registry.db
      onym registry serve --config /etc/onym/registry.toml
    """
    require_extra("starlette", "registry")
    from onym.server.app import run_registry  # late: only this command needs the web server
    from onym.server.settings import load_settings

    settings = _resolve_base_url(
        load_settings(config, database=_common.find_database(session, db, config), **options)
    )

    def ready(_: int) -> None:
        url = f"{settings.base_url}/"
        if session.as_json:
            session.print_json_line({"url": url})
        else:
            session.print_error(f"{session.paint('serving', 'good', sys.stderr)}: {url} (Ctrl-C ends it)")

    run_registry(settings, ready=ready)


def _resolve_base_url(settings: Settings) -> Settings:
    """Use the listening address as the base URL, if none is set and the address is loopback.

    Plain HTTP is for loopback only. Raises UsageError for another address.
    """
    from onym.server.settings import Settings

    if settings.base_url != Settings().base_url:
        return settings
    if not is_loopback(settings.host):
        raise UsageError(
            f"the public URL of the service on {settings.host} is not set",
            code="usage.base-url",
            hint="set --base-url https://registry.example, or base_url in the settings, to the URL of the "
            "TLS proxy; without a proxy use --host 127.0.0.1",
        )
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return replace(settings, base_url=f"http://{host}:{settings.port}", allowed_hosts=())


_config_option = click.option(
    "--config", metavar="FILE", help="The settings file (TOML). Default: ONYM_REGISTRY_CONFIG."
)


@click.group("webhook", cls=OrderedGroup, short_help="List and test the webhooks of the settings.")
def webhook_command() -> None:
    """List and test the webhooks, which are [[webhooks]] tables of the settings file.

    `onym registry serve` and `onym registry tick --send` send changes of entries to them.
    """


def _load_webhook_settings(config: str | None) -> Settings:
    require_extra("starlette", "registry")
    from onym.server.settings import load_settings  # late: few commands need the web server's settings

    return load_settings(config)


@webhook_command.command("list", short_help="List webhooks and their deliveries.")
@_config_option
@_common.pass_database
async def list_command(session: Session, /, config: str | None, db: str | None) -> None:
    """List webhooks: how many deliveries wait, were sent and were given up, and the last failure.

    \b
    Examples:
      onym registry webhook list --config registry.toml
    """
    settings = _load_webhook_settings(config)
    found: list[dict[str, Any]] = []
    async with _common.open_store(session, _common.find_database(session, db, config)) as store:
        for hook in settings.webhooks:
            counts = await store.outbox.count_deliveries(hook.name)
            sent = counts.last_sent
            found.append(
                {
                    "name": hook.name,
                    "origin": "/".join(hook.url.split("/")[:3]),
                    "registries": list(hook.registries),
                    **select_fields(counts, "waiting", "sent", "given_up", "reason"),
                    "last_sent": None if sent is None else _common.format_minute(sent),
                }
            )
    session.print_record({"webhooks": found})
    session.print_table(
        [
            (
                row["name"],
                row["origin"],
                ", ".join(row["registries"]) or "all registries",
                f"{row['sent']} sent, {row['waiting']} waiting, {row['given_up']} given up",
                row["reason"] or "",
            )
            for row in found
        ],
        styles=("name",),
    )
    if not found and not session.as_json:
        session.print_note("the settings have no [[webhooks]]")


@webhook_command.command("test", short_help="Send a test delivery to a webhook.")
@click.argument("name")
@_config_option
@_common.pass_database
async def test_command(session: Session, /, name: str, config: str | None, db: str | None) -> None:
    """Send a delivery of the type registry.test to the webhook NAME now. The exit code is 11 if it fails.

    \b
    Examples:
      onym registry webhook test catalogue --config registry.toml
    """
    settings = _load_webhook_settings(config)
    hook = next((hook for hook in settings.webhooks if hook.name == name), None)
    if hook is None:
        names = ", ".join(hook.name for hook in settings.webhooks)
        raise UsageError(
            f'the settings have no webhook "{name}"',
            code="registry.unknown-webhook",
            hint=f"the webhooks are {names}" if names else "add a [[webhooks]] table to the settings file",
        )
    from onym.server.notices import WebhookSender  # late: see above

    async with _common.open_store(session, _common.find_database(session, db, config)) as store:
        reason = await WebhookSender(settings, store, _common.utc_now).send_test(hook)
    session.print_record({"webhook": name, "ok": reason is None, "reason": reason})
    if reason is None:
        session.print_line(f"{session.paint('ok', 'good')}  {name} accepted the test delivery")
        return
    session.print_line(f"{session.paint('failed', 'bad')}  {name}: {reason}")
    exit_with(exit_codes.REGISTRY)
