"""schemathesis asks the real service, over loopback, what its own OpenAPI document says that it takes.

Twice: as nobody, and with an API token that has every scope, of an account that has every role, so that
writes are made. The boundaries of every parameter are tried once: of what is public as nobody, of the rest
with the token. No answer may be a 5xx, or other than described.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from e2e.walk import seed
from onym.accounts import records
from onym.registry.records import TOKEN_PREFIX, Actor, Event, EventKind, Role, Scope
from onym.server.registry.api.openapi import EXAMPLES, OPERATIONS
from onym.server.registry.urls import API_PREFIX
from onym.server.settings import RateLimit, RateLimits
from registry_support import Service, registry_service
from support import untraced

pytest.importorskip("schemathesis")
pytestmark = pytest.mark.xdist_group("registry-api")

BEGIN = datetime(2026, 3, 2, 9, tzinfo=UTC)
#: a fuzzer asks more often than anybody may
FREE = RateLimit(burst=1_000_000, per_minute=1_000_000.0)
TOKEN = records.make_token(TOKEN_PREFIX)

#: The checks are all on. Two are told what they do not know:
#: - positive_data_acceptance: what follows the schema may still be refused: 412 for a version that is not in
#:   force, 422 for a text without a template, a cursor of another list, data that an event does not take;
#: - missing_required_header: a write without If-Match is answered with 428 (RFC 6585 3).
CONFIG = """
request-timeout = 600

# 428: an entry's change needs one of two headers, which OpenAPI cannot say
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "412", "422", "428", "429"]

[checks.missing_required_header]
expected-statuses = ["400", "401", "403", "406", "415", "422", "428"]

[phases.stateful]
max-steps = 4

# the boundaries of their parameters are tried in the other run
[[operations]]
include-operation-id = [{tried_elsewhere}]
phases.coverage.enabled = false
"""

#: operations of which nobody gets anything but a refusal
NEEDS_ACCOUNT = {operation.id for operation in OPERATIONS if not operation.public}


async def _seed(store: Any) -> None:
    """The walk's registry, somebody who may do everything, and a first request of theirs."""
    await seed(store)
    account = records.Account(
        id="user-all",
        login="all",
        name="Alex Example",
        email="all@example.net",
        password_hash=None,
        roles={records.ALL_REALMS: frozenset({Role.IANA, Role.EXPERT, Role.IESG})},
        created=BEGIN,
    )
    await store.accounts.add(account)
    body = next(operation.example for operation in OPERATIONS if operation.id == "openRequest") or {}
    event = Event(
        kind=EventKind.OPEN,
        registry=body["registry"],
        name=body["name"],
        data={"fields": {**body["fields"], "name": body["name"]}, "status": body["status"], "kind": "new"},
    )
    registrant = Actor(id=account.id, roles=frozenset({Role.REGISTRANT}))
    opened = await store.apply(event, registrant, BEGIN)
    assert opened.decision.request.id == EXAMPLES["id"]
    # drafts are their registrants' alone
    archive = {"archive": "https://mailarchive.ietf.org/arch/msg/uri-review/example"}
    event = Event(
        kind=EventKind.ANNOUNCE, registry=body["registry"], request=str(EXAMPLES["id"]), data=archive
    )
    await store.apply(event, registrant, BEGIN)
    await store.tokens.create(_token("token-all", TOKEN))
    await store.tokens.create(_token(str(EXAMPLES["token"]), records.make_token(TOKEN_PREFIX)))


def _token(identifier: str, secret: Any) -> records.ApiToken:
    return records.ApiToken(
        id=identifier,
        digest=records.hash_secret(secret),
        account="user-all",
        label="schemathesis",
        scopes=frozenset(Scope),
        created=BEGIN,
        expires=None,
    )


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    rates = RateLimits(reads=FREE, writes=FREE, logins=FREE)
    with registry_service(str(tmp_path / "registry.db"), seed=_seed, rates=rates) as running:
        running.now = BEGIN
        yield running


def _run(service: Service, folder: Path, covered: set[str], *options: str) -> Counter[tuple[str, int]]:
    """Run it; how often each operation gave each status. Fails with what it found.

    The boundaries of the parameters are tried for the operations `covered`, the examples for all.
    """
    others = sorted({operation.id for operation in OPERATIONS} - covered)
    config = CONFIG.replace("{tried_elsewhere}", ", ".join(f'"{name}"' for name in others))
    (folder / "schemathesis.toml").write_text(config, encoding="utf-8")
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml"),
        *("run", f"{service.url}/openapi.json", "--seed", "7395", "--generation-deterministic"),
        *("--continue-on-failure", "--no-color", "--report-har-path", "asked.har", *options),
    ]
    done = subprocess.run(
        command, cwd=folder, env=untraced(), capture_output=True, text=True, timeout=3600, check=False
    )
    assert done.returncode == 0, done.stdout[-12_000:] + done.stderr[-4_000:]
    log = json.loads((folder / "asked.har").read_text(encoding="utf-8"))["log"]["entries"]
    found: Counter[tuple[str, int]] = Counter()
    for record in log:
        path = record["request"]["url"].partition("?")[0].removeprefix(service.url)
        found[_operation(record["request"]["method"], path), record["response"]["status"]] += 1
    service.ask(lambda store: store.verify())
    return found


def _operation(method: str, path: str) -> str:
    for operation in OPERATIONS:
        if operation.method == method and re.fullmatch(
            re.sub(r"\{\w+\}", "[^/]+", API_PREFIX + operation.path), path
        ):
            return operation.id
    return f"{method} {path}"


def _answered(found: Counter[tuple[str, int]], least: int, most: int) -> set[str]:
    return {name for name, status in found if least <= status <= most}


def test_the_api_is_as_described_for_whoever_has_not_signed_in(service: Service, tmp_path: Path) -> None:
    names = {operation.id for operation in OPERATIONS}
    # of an operation that needs an account, nobody gets further than the refusal
    phases = ("--phases", "examples,coverage,fuzzing")
    found = _run(service, tmp_path, names - NEEDS_ACCOUNT, "--max-examples", "1", *phases)
    assert not _answered(found, 500, 599)
    assert names - _answered(found, 200, 299) == NEEDS_ACCOUNT
    assert all(found[name, 401] for name in NEEDS_ACCOUNT)


def test_the_api_is_as_described_for_somebody_who_may_do_everything(service: Service, tmp_path: Path) -> None:
    header = f"Authorization: Bearer {TOKEN.reveal()}"
    found = _run(service, tmp_path, NEEDS_ACCOUNT, "--max-examples", "1", "-H", header)
    assert not _answered(found, 500, 599)
    # every operation did what it is for at least once: writes too
    assert {operation.id for operation in OPERATIONS} <= _answered(found, 200, 299)
