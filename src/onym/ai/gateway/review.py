"""Calls as people see them: form fields for the input, and the review before an approval (3.13). Pure.

Texts come from callers and authorities, who may want to mislead: hidden characters get names, long values are
cut with a count. JSON with two meanings is rejected before anything is shown. No text is markup.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

import msgspec

from onym.ai.records import Effects, is_json, parse_media_type
from onym.common.text import decode_base64url, encode_base64url, parse_json_value
from onym.errors import AIIPError, URIError
from onym.uri.ai import AIURI
from onym.uri.iri import parse_user_input

MOST_FIELDS: Final = 48
_MOST_CHOICES: Final = 100
_LONGEST: Final = 200
_LONGEST_HELP: Final = 500
#: name of the only field of a schema that is not an object with properties
WHOLE_INPUT: Final = ""
_TEXT_LINE: Final = 200
_MOST_REFERENCES: Final = 4

Kind: TypeAlias = Literal["text", "long", "number", "integer", "choice", "flag", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One control. `name` is the property's name, `choices` are pairs of JSON text and label."""

    name: str
    label: str
    kind: Kind
    required: bool = False
    help: str = ""
    value: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    least: str = ""
    most: str = ""
    longest: str = ""


def build_form_fields(schema: Mapping[str, Any] | None) -> tuple[FormField, ...]:
    """Return the controls for this input; () if the resource has no input."""
    whole = FormField(name=WHOLE_INPUT, label="Input (JSON)", kind="json", required=schema is not None)
    if schema is None:
        return (whole,)
    root, schema = schema, resolve_reference(schema, schema)
    properties = schema.get("properties")
    plain = isinstance(properties, Mapping) and schema.get("type", "object") == "object"
    properties = properties if isinstance(properties, Mapping) else {}
    if not plain or len(properties) > MOST_FIELDS or WHOLE_INPUT in properties:
        return () if schema.get("type") == "null" else (whole,)
    required = schema.get("required")
    needed = {str(name) for name in required} if isinstance(required, list) else set()
    return tuple(
        _build_field(
            str(name),
            resolve_reference(member, root) if isinstance(member, Mapping) else {},
            str(name) in needed,
        )
        for name, member in properties.items()
    )


def resolve_reference(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that a local `$ref` names, merged with its siblings; other references stay."""
    for _ in range(_MOST_REFERENCES):
        reference = schema.get("$ref")
        place = reference.split("/") if isinstance(reference, str) else []
        definitions = root.get(place[1]) if len(place) == 3 and place[0] == "#" else None
        found = definitions.get(place[2]) if isinstance(definitions, Mapping) else None
        if not isinstance(found, Mapping):
            break
        schema = {**found, **{name: value for name, value in schema.items() if name != "$ref"}}
    return schema


def _build_field(name: str, schema: Mapping[str, Any], required: bool) -> FormField:
    choices = _list_choices(schema)
    kind: Kind = "choice" if choices else _get_field_kind(schema)
    default = schema.get("default")
    return FormField(
        name=name,
        label=_truncate_text(schema.get("title"), _LONGEST) or name[:_LONGEST],
        kind=kind,
        # an empty checkbox is false, not missing
        required=required and kind != "flag",
        help=_truncate_text(schema.get("description"), _LONGEST_HELP),
        value=_format_default(default, kind),
        choices=choices,
        least=_format_number(schema.get("minimum")),
        most=_format_number(schema.get("maximum")),
        longest=_format_number(schema.get("maxLength")),
    )


def _get_field_kind(schema: Mapping[str, Any]) -> Kind:
    kind = schema.get("type")
    if kind == "string":
        longest = schema.get("maxLength")
        short = "format" in schema or (isinstance(longest, int) and longest <= _TEXT_LINE)
        return "text" if short else "long"
    known: dict[Any, Kind] = {"integer": "integer", "number": "number", "boolean": "flag"}
    return known.get(kind, "json") if isinstance(kind, str) else "json"


def _list_choices(schema: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    given = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(given, list) or not 0 < len(given) <= _MOST_CHOICES:
        return ()
    found = tuple(
        (_encode_json(value), value if isinstance(value, str) else _encode_json(value)) for value in given
    )
    # a definition can be referenced many times, so its size must be limited
    return found if all(len(text) <= _LONGEST for text, _ in found) else ()


def _format_default(default: Any, kind: Kind) -> str:
    if default is None:
        return ""
    text = default if isinstance(default, str) and kind in {"text", "long"} else _encode_json(default)
    return text[: 4 * _LONGEST]


def _truncate_text(value: Any, longest: int) -> str:
    return value[:longest] if isinstance(value, str) else ""


def _format_number(value: Any) -> str:
    return _encode_json(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value).decode("utf-8")


def encode_form_input(fields: tuple[FormField, ...], given: Mapping[str, str]) -> bytes:
    """Return the JSON body of a submitted form. `given` are the texts by field name.

    An empty optional field is left out. Raises AIIPError `aiip.invalid-input`, which names the field but not
    its content.
    """
    if not fields:
        return b""
    if fields[0].name == WHOLE_INPUT:
        text = given.get(WHOLE_INPUT, "").strip()
        if not text and not fields[0].required:
            return b""
        return msgspec.json.encode(_decode_json(text, fields[0]))
    found = {}
    for form_field in fields:
        text = given.get(form_field.name, "")
        if form_field.kind == "flag":
            found[form_field.name] = text != ""
        elif text or form_field.required:
            found[form_field.name] = _parse_field_value(form_field, text)
    return msgspec.json.encode(found)


def _parse_field_value(field: FormField, text: str) -> Any:
    if field.kind == "text":
        return text
    if field.kind == "long":
        return text.replace("\r\n", "\n")  # a form sends line ends as CRLF
    if field.kind == "choice" and text not in dict(field.choices):
        raise _make_field_error(field, "Choose one item of the list.")
    value = _decode_json(text.strip(), field)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if field.kind in {"integer", "number"} and not number:
        raise _make_field_error(field, "Enter a number.")
    return value


def _decode_json(text: str, field: FormField) -> Any:
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        is_number = field.kind in {"integer", "number"}
        hint = "Enter a number." if is_number else 'Enter JSON, such as {"a": 1}.'
        raise _make_field_error(field, hint) from None


def _make_field_error(field: FormField, hint: str) -> AIIPError:
    name = field.label if field.name else "the input"
    return AIIPError(f"{name} is not valid", code="aiip.invalid-input", hint=hint)


#: characters and lines of one value, and members, that are shown
MAX_CHARACTERS: Final = 2_000
MAX_LINES: Final = 40
MAX_MEMBERS: Final = 200
#: characters of a label, a title or a name
_MAX_LABEL: Final = 200
#: nesting of JSON in a call that is approved
_MAX_DEPTH: Final = 16
_INTEGERS: Final = range(-(2**63), 2**63)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_HIDDEN: Final = "Hidden. The approval is for this value only."
#: marks on one letter; more would cover the lines around it
_MAX_MARKS: Final = 3
#: characters that are printable by their category, and that nobody can see
_UNSEEN: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)
_CLAUSE: Final = "AIIP/HTTPS v1 3.13"
#: what an invocation does, in words; `write` by whether its author promises that it can be undone
_EFFECTS: Final[Mapping[tuple[Effects, bool], str]] = {
    (Effects.READ, False): "It reads data. It changes nothing.",
    (Effects.WRITE, True): "It changes data. The author promises that the change can be undone.",
    (Effects.WRITE, False): "It changes or deletes data. The change cannot be undone.",
    (Effects.FINANCIAL, False): "It moves money or makes a binding order.",
    (Effects.PHYSICAL, False): "It acts on the physical world, such as a machine or a door.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallToReview:
    """A call as it was stored. `uri` is canonical, with its query; `schema` is the schema of its input.

    `title` and `reason` are the authority's words, `proof` is the gateway's: how the authority was proved.
    `person` and `client` name the person and the program that ask. `request` is the request hash.
    """

    uri: str
    method: str
    body: bytes = field(repr=False)
    content_type: str | None
    effects: Effects
    reversible: bool = False
    title: str | None = None
    schema: Mapping[str, Any] | None = field(default=None, repr=False)
    reason: str
    proof: str
    person: str
    client: str
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRow:
    """One member of the input. `label` is the schema's title, `path` the member's name.

    `value` is printable. A `hidden` value is bound by the approval, and not shown. `change` is "new" or
    "changed" if there was an earlier call, and `before` is the value in it; "gone" for a member of that call
    which this one lacks.
    """

    label: str
    path: str
    value: str
    hidden: bool = False
    change: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """Everything that a person is shown. `digest_groups` identify the call, `warnings` are the gateway's."""

    uri: str
    unicode: str
    authority: str
    title: str
    effects: str
    proof: str
    reason: str
    person: str
    client: str
    rows: tuple[ReviewRow, ...]
    omitted: int
    compared: bool
    warnings: tuple[str, ...]
    digest_groups: tuple[str, ...]

    @property
    def shown(self) -> str:
        """`smd`, the hash of what was shown, which the approval contains."""
        return encode_base64url(sha256(msgspec.json.encode(self, order="sorted")).digest())


def format_digest(request: str) -> tuple[str, ...]:
    """Return a request hash for people: four groups of eight hexadecimal digits."""
    text = decode_base64url(request).hex()
    return tuple(text[start : start + 8] for start in range(0, 32, 8))


def build_review(call: CallToReview, earlier: CallToReview | None = None) -> Review:
    """Return what a person is shown of a call; `earlier` is the last call of this kind, for comparison.

    Raises AIIPError `aiip.invalid-input` for input that could mean something else to the endpoint.
    """
    uri = AIURI.parse(call.uri)
    unicode, warnings = describe_name(uri)
    members = _list_call(call)
    rows = [member.row for member in members] if earlier is None else _compare_members(members, earlier)
    return Review(
        uri=call.uri,
        unicode=unicode,
        authority=uri.authority_text or "",
        title=show_text(call.title or "", lines=1, characters=_MAX_LABEL),
        effects=describe_effects(call.effects, reversible=call.reversible),
        proof=call.proof,
        reason=show_text(call.reason, lines=4, characters=512),
        person=show_text(call.person, lines=1, characters=_MAX_LABEL),
        client=show_text(call.client, lines=1, characters=_MAX_LABEL),
        rows=tuple(rows[:MAX_MEMBERS]),
        omitted=max(0, len(rows) - MAX_MEMBERS),
        compared=earlier is not None,
        warnings=tuple(warnings),
        digest_groups=format_digest(call.request),
    )


def describe_effects(effects: Effects, *, reversible: bool = False) -> str:
    """Return a sentence about the effects of an invocation."""
    return _EFFECTS[effects, reversible and effects is Effects.WRITE]


def describe_name(uri: AIURI) -> tuple[str, list[str]]:
    """Return the URI in Unicode, and warnings about the name of its authority."""
    try:
        typed = parse_user_input(str(uri))
    except URIError:
        return show_text(str(uri), lines=1), []
    warnings = [warning.message for warning in typed.warnings]
    host = (uri.host or "").lower()
    if any(label.startswith("xn--") for label in host.split(".")):
        letters = {unicodedata.name(character, "?").split()[0] for character in _get_host(typed.unicode)}
        scripts = ", ".join(sorted(word.capitalize() for word in letters))
        warnings.append(f"the name is written with other letters than a to z ({scripts}): compare both forms")
    return show_text(typed.unicode, lines=1), warnings


def _get_host(unicode: str) -> str:
    """Return the letters of the host in a URI that are not ASCII."""
    host = unicode.partition("//")[2].partition("/")[0]
    return "".join(character for character in host if not character.isascii())


def show_text(text: str, *, lines: int = MAX_LINES, characters: int = MAX_CHARACTERS) -> str:
    """Return text in which every character is seen: unseen ones are named, and long text is cut with a count.

    With `lines=1` line ends are named too.
    """
    shown: list[str] = []
    size = marks = 0
    count = 1
    for place, character in enumerate(text):
        if character == "\n" and lines > 1:
            count += 1
            if count > lines:
                left = text.count("\n", place)
                return f"{''.join(shown)}\n[cut: {left} more lines, {len(text) - place} more characters]"
            piece = "\n"
        else:
            marks = marks + 1 if unicodedata.combining(character) else 0
            piece = character if _is_seen(character, marks) else _name_character(character)
        if size + len(piece) > characters:
            return f"{''.join(shown)} [cut: {len(text) - place} more characters]"
        size += len(piece)
        shown.append(piece)
    return "".join(shown)


def _is_seen(character: str, marks: int) -> bool:
    return character.isprintable() and character not in _UNSEEN and marks <= _MAX_MARKS


def _name_character(character: str) -> str:
    name = unicodedata.name(character, "control character").lower()
    return f"[U+{ord(character):04X} {name}]"


@dataclass(frozen=True, slots=True)
class _Member:
    """A row with the member's full path and its value, for comparison."""

    row: ReviewRow
    path: str
    content: bytes = field(repr=False)


def _compare_members(members: list[_Member], earlier: CallToReview) -> list[ReviewRow]:
    """Return the rows with their changes since the earlier call, and rows for members that are gone."""
    try:
        before = {member.path: member for member in _list_call(earlier)}
    except AIIPError:
        before = {}  # it was read by older rules
    rows = []
    for member in members:
        known = before.pop(member.path, None)
        if known is None:
            rows.append(replace(member.row, change="new"))
        elif known.content != member.content:
            rows.append(replace(member.row, change="changed", before=known.row.value))
        else:
            rows.append(member.row)
    gone = [replace(known.row, value="", change="gone", before=known.row.value) for known in before.values()]
    return rows + gone


def _list_call(call: CallToReview) -> list[_Member]:
    """Return every parameter of the query and every member of the body."""
    root = call.schema or {}
    schema = resolve_reference(root, root)
    members: list[_Member] = []
    for name, text in AIURI.parse(call.uri).parameters:
        member = _get_member_schema(schema, root, name)
        label, hidden = _get_label(member, name), _is_hidden(member, root)
        members.append(_make_member(f"?{name}", label, text, text.encode(), hidden=hidden))
    if call.body and not is_json(call.content_type):
        kind = show_text(parse_media_type(call.content_type) or "no media type", lines=1)
        digest = encode_base64url(sha256(call.body).digest())
        text = f"{kind}, {len(call.body)} bytes, SHA-256 {digest}. Its content is not shown."
        return [*members, _make_member("$", "Body", text, call.body)]
    if call.body:
        members += _list_value(parse_reviewed_json(call.body), schema, root, "$", ())
    return members


def parse_reviewed_json(body: bytes) -> Any:
    """Parse JSON that has one meaning for every program.

    Raises AIIPError `aiip.invalid-input` for duplicate members, numbers beyond 64 bits or the precision of
    floating-point numbers, and deep nesting.
    """
    try:
        value = parse_json_value(body)
    except ValueError as error:
        raise _make_error(f"the body {error}") from None
    json.loads(body, parse_float=_require_exact)
    _require_plain(value, _MAX_DEPTH)
    return value


def _require_plain(value: Any, depth: int) -> None:
    if depth < 0:
        raise _make_error(f"the body nests deeper than {_MAX_DEPTH} levels")
    if isinstance(value, int) and value not in _INTEGERS:
        raise _make_error("the body has a number that does not fit into 64 bits")
    if isinstance(value, str) and _SURROGATES.search(value):
        raise _make_error("the body has a lone surrogate, which no text can contain")
    children: list[Any] = [*value, *value.values()] if isinstance(value, dict) else []
    children += value if isinstance(value, list) else []
    for child in children:
        _require_plain(child, depth - 1)


def _require_exact(text: str) -> float:
    """Return a number. Raises AIIPError if programs with other precision would read another number."""
    number = float(text)
    if Decimal(repr(number)) != Decimal(text):
        raise _make_error("the body has a number with more digits than programs keep")
    return number


def _list_value(
    value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], path: str, labels: tuple[str, ...]
) -> Iterator[_Member]:
    """Yield a value, or its members if it has any, labelled by the titles of the schema."""
    hidden = _is_hidden(schema, root)
    if isinstance(value, dict) and value and not hidden:
        for name, child in value.items():
            member = _get_member_schema(schema, root, name)
            yield from _list_value(child, member, root, f"{path}.{name}", (*labels, _get_label(member, name)))
    elif isinstance(value, list) and value and not hidden:
        items = _resolve(schema.get("items"), root)
        for number, child in enumerate(value, 1):
            yield from _list_value(child, items, root, f"{path}[{number}]", (*labels, str(number)))
    else:
        content = msgspec.json.encode(value)
        text = value if isinstance(value, str) else content.decode()
        yield _make_member(path, " / ".join(labels) or "Input", text, content, hidden=hidden)


def _make_member(path: str, label: str, text: str, content: bytes, *, hidden: bool = False) -> _Member:
    row = ReviewRow(
        label=show_text(label, lines=1, characters=_MAX_LABEL),
        path=show_text(path, lines=1, characters=_MAX_LABEL),
        value=_HIDDEN if hidden else show_text(text) or "(empty)",
        hidden=hidden,
    )
    return _Member(row, path, content)


def _get_member_schema(schema: Mapping[str, Any], root: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the schema of a member. Raises AIIPError for one that a schema with properties does not know."""
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    others = schema.get("additionalProperties", not known)
    if name not in known and others is False:
        shown = show_text(name, lines=1, characters=64)
        raise _make_error(f"the resource's schema has no member {shown}")
    return _resolve(known.get(name, others), root)


def _get_label(schema: Mapping[str, Any], name: str) -> str:
    title = schema.get("title")
    return title if isinstance(title, str) and title.strip() else name


def _is_hidden(schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Report whether the value, in one of its alternatives, must not be shown."""
    if schema.get("writeOnly") is True:
        return True
    lists = [schema.get(name) for name in ("anyOf", "oneOf", "allOf")]
    alternatives = [schema for found in lists if isinstance(found, list) for schema in found]
    return any(_resolve(alternative, root).get("writeOnly") is True for alternative in alternatives)


def _resolve(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema with its local `$ref` resolved; an empty one for anything that is not an object."""
    return resolve_reference(schema, root) if isinstance(schema, Mapping) else {}


def _make_error(message: str) -> AIIPError:
    return AIIPError(
        message,
        code="aiip.invalid-input",
        clause=_CLAUSE,
        hint="A call that people approve must have one meaning. Send it in another form.",
    )
