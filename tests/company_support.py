"""The registries of a company, which never speaks of IANA: its definition, and its log's first event."""

from __future__ import annotations

from pathlib import Path

from onym.accounts.records import ALL_REALMS
from onym.registry.definitions import Definition, load_definition
from onym.registry.records import Actor, Event, EventKind, Role

__all__ = ["ADMINISTRATOR", "COMPANY", "define", "load"]

COMPANY = """\
title = "Example AG names"

[roles]
requester = "the team"
registrar = "the naming office"
reviewer = "the architect"
board = "the architecture board"

[labels]
"status.registered" = "In use"
"status.deprecated" = "Retired"
"action.approve" = "Accept the name"

[[registries]]
id = "services"
title = "Internal services"
short_title = "Services"
noun = "service"
summary = "One name for each internal service."
reference = "Naming policy 2026-11"
name_label = "Service"
name_limit = 40

[registries.policy.registered]
name = "Review by an architect"
decided_by = "reviewer"
days = 5

[[registries.fields]]
id = "owner"
label = "Owning team"
required = true

[[registries.fields]]
id = "endpoint"
label = "Endpoint"
help = "The URL of the service inside the network."

[[registries]]
id = "topics"
title = "Message topics"
noun = "topic"
reference = "Naming policy 2026-11"
procedure = "staged"

[registries.policy.provisional]
name = "First come, first served"
decided_by = "registrar"

[registries.policy.permanent]
name = "Decision of the board"
decided_by = "board"
days = 10
discussion_days = 7
"""

ADMINISTRATOR = Actor(id="user-root", roles=frozenset(Role))


def load(folder: Path, text: str = COMPANY) -> Definition:
    """Write the definition into the folder, and read it."""
    path = folder / "company.toml"
    path.write_text(text, encoding="utf-8")
    return load_definition(path)


def define(definition: Definition) -> Event:
    """The event that puts the definition in force."""
    return Event(kind=EventKind.DEFINE, registry=ALL_REALMS, data={"definition": dict(definition.definition)})
