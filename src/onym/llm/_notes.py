"""Notes on what is no parameter of a request: label, fragment, `auth`, withheld names, the system prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onym.llm._params import DRAFT
from onym.llm.mapping import Action, Mapped, MappingNote
from onym.uri._names import WELL_KNOWN, shown

if TYPE_CHECKING:
    from onym.llm._endpoint import Endpoint
    from onym.uri.llm import LLMURI

__all__ = ["not_for_embeddings", "overruled", "stream_note", "system_note", "uri_notes"]


def uri_notes(
    uri: LLMURI, endpoint: Endpoint, profiles: Mapping[str, Any]
) -> tuple[tuple[MappingNote, ...], tuple[str, ...]]:
    """What became of the parts of the URI that are no parameters of a request."""
    notes: list[MappingNote] = []
    warnings: list[str] = []
    spent = endpoint.place.names
    for used in endpoint.place.used:
        note = _note(used.parameter, used.value, used.origin, "renamed", used.wire, None, "4.4")
        notes.append(replace(note, source=endpoint.provider.source))
    if uri.label and endpoint.label is not None:
        header = endpoint.label_header
        reason = None if header else f"{endpoint.provider.title} has no header for this label"
        notes.append(
            _note("label", uri.label, "uri", "sent" if header else "dropped", header, reason, "4.2.1")
        )
    if "auth" in uri.params:
        notes.append(
            _note("auth", uri.params["auth"], "uri", "client", None, "names the key; never sent", "10.1")
        )
    if uri.fragment is not None:
        chosen = "chooses this profile" if uri.fragment in profiles else "no profile has this name"
        notes.append(_note("fragment", uri.fragment, "uri", "client", None, f"{chosen}; never sent", "4.5"))
    for name in uri.withheld:
        if name in spent:
            continue
        reason = "it would redirect or replace the request, or it carries a credential"
        notes.append(_note(name, uri.params[name], "uri", "withheld", None, reason, "4.4"))
        warnings.append(f"the URI's parameter {shown(name)} was not sent: {reason}")
    return tuple(notes), tuple(warnings)


def _note(
    parameter: str,
    value: Any,
    origin: str,
    action: Action,
    wire: str | None,
    reason: str | None,
    section: str,
) -> MappingNote:
    return MappingNote(
        parameter=parameter,
        value=value,
        origin=origin,
        action=action,
        wire_name=wire,
        reason=reason,
        clause=f"{DRAFT} {section}",
    )


def system_note(system: str, origin: str, action: Action, name: str | None = None) -> MappingNote:
    wire = reason = None
    if action == "dropped":
        reason = "the messages bring a system message of their own"
    else:
        wire = name or "messages[0]"
        if origin == "uri":
            reason = "came with the URI: as trustworthy as whoever wrote that"
    return _note("system", system, origin, action, wire, reason, "10.4")


def stream_note(origin: str, stream: bool, name: str | None) -> MappingNote:
    action: Action = "client" if not stream else "sent" if name == "stream" else "renamed"
    return _note("stream", stream, origin, action, name if stream else None, None, "6")


def overruled(mapped: Mapped, body: Mapping[str, Any]) -> tuple[MappingNote, ...]:
    """The notes of `mapped`, where the call's own arguments took the place of pass-through ones."""
    return tuple(
        replace(note, action="dropped", wire_name=None, reason="the call says it itself")
        if note.action == "sent" and note.parameter in mapped.extra and body.get(note.parameter) != note.value
        else note
        for note in mapped.notes
    )


def not_for_embeddings(note: MappingNote) -> MappingNote:
    if note.parameter not in WELL_KNOWN or note.action not in ("sent", "renamed"):
        return note
    return replace(
        note, action="dropped", wire_name=None, reason="a call for embeddings has no such parameter"
    )
