"""The gateway's pages: frozen views, built from results, and the templates that render them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import msgspec

from onym.ai.content import parse_media_type
from onym.ai.gateway.access_policy import find_denial
from onym.ai.gateway.forms import FormField, build_form_fields
from onym.errors import NetError
from onym.net.sse import SSEDecoder, SSEEvent
from onym.server.services import make_template_environment
from onym.uri.ai import to_path

if TYPE_CHECKING:
    from jinja2 import Environment

    from onym.ai.gateway.forwarding import Refusal
    from onym.ai.records import Description, Resolution, Result, Source
    from onym.errors import AIIPError
    from onym.server.gateway.dependencies import RequestContext
    from onym.server.gateway.result_store import StoredResult
    from onym.server.gateway.settings import GatewaySettings
    from onym.uri.ai import AIURI

#: events and characters that a page shows; the whole is there to be downloaded
_MOST_EVENTS: Final = 200
_MAX_STREAM_TEXT: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """`text` is what the pieces make together, "" where they are no pieces of text.

    `result` is the event of that name; `events` are (type, data) without the receipt, which a page shows
    elsewhere, and `count` is how many there are.
    """

    text: str
    result: str
    events: tuple[tuple[str, str], ...]
    count: int
    cut: bool


def build_stream_view(body: bytes) -> StreamView | None:
    """What a verified body of the type text/event-stream says. None for what is none."""
    try:
        events = SSEDecoder().feed(body)
    except NetError:
        return None
    if events and events[-1].event == "receipt":
        events.pop()
    text = _join_text(events)
    shown = _limit_events(events[:_MOST_EVENTS])
    return StreamView(
        text=text[:_MAX_STREAM_TEXT],
        result=next(
            (format_json(event.data)[:_MAX_STREAM_TEXT] for event in events if event.event == "result"), ""
        ),
        events=shown,
        count=len(events),
        cut=len(shown) < len(events) or len(text) > _MAX_STREAM_TEXT,
    )


def format_json(text: str) -> str:
    """JSON on lines; anything else as it is."""
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        return text


def _join_text(events: Sequence[SSEEvent]) -> str:
    pieces = [_parse_text_piece(event.data) for event in events if event.event == "message"]
    return "" if None in pieces else "".join(filter(None, pieces))


def _parse_text_piece(data: str) -> str | None:
    """The text that one message brings: a JSON text, or the member `text` of an object. None for others."""
    try:
        found: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    if isinstance(found, dict):
        found = found.get("text")
    return found if isinstance(found, str) else None


def _limit_events(events: Sequence[SSEEvent]) -> tuple[tuple[str, str], ...]:
    """The first events, as long as all of them together are not too long for a page."""
    shown, left = [], _MAX_STREAM_TEXT
    for event in events:
        left -= len(event.data)
        if left < 0:
            break
        shown.append((event.event, event.data))
    return tuple(shown)


#: characters of a result that a page shows; the whole is there to be downloaded
_LONGEST_SHOWN: Final = 64 * 1024
_TEXTS: Final = frozenset({"application/json", "application/problem+json", "application/aiip+json"})

_VERIFY: Final = (
    "curl -o history.json '{anchor}/.well-known/aiip.jwks.json?history'\n"
    "onym ai verify receipt.jwt --body result --history history.json --uri '{uri}'"
)

#: what was verified -> (clause, sentence); the order is that of the client's checks
_CHECKS: Final = {
    "form": ("3.8 step 1", "It is small and of three parts, in strict base64url"),
    "header": (
        "3.8 steps 2, 3",
        "Its header names a receipt, an allowed algorithm and a key, and nothing else",
    ),
    "key": ("3.8 step 4", "The key is one that the authority publishes on its own origin"),
    "signature": ("3.8 step 5", "The signature holds"),
    "issuer": ("3.8 step 6", "It was issued by the authority's anchor"),
    "resource": ("3.8 step 6", "It is for this resource"),
    "audience": ("3.8 step 6", "It is made out to this gateway"),
    "nonce": ("3.8 step 6", "It answers the number that this gateway made up for the request"),
    "request": ("3.8 step 6", "It is for this very request: method, target, body and their types"),
    "time": ("3.8 step 6", "It was signed at this moment"),
    "replay": ("3.8 step 6", "It was not seen before"),
    "status": ("3.8 step 7", "The status is the one that was signed"),
    "content type": ("3.8 step 7", "The content type is the one that was signed"),
    "content": ("3.8 step 7", "Every octet of the content is as it was signed"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeView:
    """The front page: an ai URI can be typed. `fault` says what was wrong with the last one."""

    template: ClassVar[str] = "home.html"
    name: str
    typed: str = ""
    fault: str = ""
    hint: str = ""
    uri: str = ""
    shown: str = ""
    warnings: tuple[str, ...] = ()
    href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView:
    """One step of a verification."""

    clause: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofView:
    """A receipt, and how it was verified. `rows` are (name, value)."""

    rows: tuple[tuple[str, str], ...]
    checks: tuple[CheckView, ...]
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityView:
    """Who answers for a resource. `sources` are (source, rank, verdict, why)."""

    authority: str
    anchor: str
    service: str
    keys: tuple[str, ...]
    requirements: str
    sources: tuple[tuple[str, str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlView:
    """A control of the form, with the name that it has in the page and what was typed."""

    id: str
    field: FormField
    value: str
    ticked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceView:
    """The page of an ai URI. `closed` says why it cannot be invoked here; "" where it can."""

    template: ClassVar[str] = "resource.html"
    name: str
    uri: str
    address: str
    title: str
    effects: str
    methods: str
    output: str
    answered: AuthorityView
    proof: ProofView
    closed: str
    closed_code: str
    csrf: str
    key: str
    controls: tuple[ControlView, ...]
    fault: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultView:
    """The page of a result. `text` is its content where it can be shown as text, `stream` what its events
    say, `links` what can be kept, `commands` what verifies it elsewhere.
    """

    template: ClassVar[str] = "result.html"
    name: str
    uri: str
    address: str
    status: int
    good: bool
    content_type: str
    length: int
    text: str
    cut: bool
    shown: bool
    at: str
    anchor: str
    proof: ProofView
    links: tuple[tuple[str, str], ...]
    commands: str
    stream: StreamView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemView:
    """An error, for people."""

    template: ClassVar[str] = "error.html"
    name: str
    status: int
    title: str
    detail: str
    code: str
    request_id: str
    hint: str
    clause: str
    target: str
    canonical: str
    canonical_href: str


View: TypeAlias = HomeView | ResourceView | ResultView | ProblemView


def build_gateway_url(settings: GatewaySettings, uri: AIURI) -> str:
    """The HTTPS address under which the gateway serves this canonical URI."""
    return settings.base_url + to_path(settings.prefix, uri)


def build_problem_view(settings: GatewaySettings, visit: RequestContext, refusal: Refusal) -> ProblemView:
    """The page of a refusal."""
    canonical = refusal.canonical or ""
    return ProblemView(
        name=settings.name,
        status=refusal.status,
        title=refusal.title,
        detail=refusal.detail,
        code=refusal.code,
        request_id=visit.id,
        hint=refusal.hint or "",
        clause=refusal.clause or "",
        target=refusal.target or "",
        canonical=canonical,
        canonical_href=_build_canonical_url(settings, canonical),
    )


def _build_canonical_url(settings: GatewaySettings, canonical: str) -> str:
    from onym.errors import URIError
    from onym.uri.ai import AIURI

    try:
        return build_gateway_url(settings, AIURI.parse(canonical)) if canonical else ""
    except URIError:
        return ""


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def build_proof_view(result: Result) -> ProofView:
    """The receipt of a verified result."""
    receipt = result.receipt
    bound = (
        ("Content", f"{receipt.digest}, {receipt.length} octets")
        if receipt.stream is None
        else ("Events", f"{receipt.stream.count}, chain {receipt.stream.digest}")
    )
    rows = (
        ("Issued by", receipt.issuer),
        ("For the resource", receipt.subject),
        ("Made out to", receipt.audience),
        ("Signed at", _format_time(receipt.issued)),
        ("Status", str(receipt.status)),
        bound,
        ("Request hash", receipt.request),
        ("Receipt id", receipt.id),
    )
    known = [
        CheckView(clause=_CHECKS[check][0], words=_CHECKS[check][1])
        for check in result.checks
        if check in _CHECKS
    ]
    return ProofView(rows=rows, checks=tuple(known), token=result.token)


def build_authority_view(resolution: Resolution) -> AuthorityView:
    """Who speaks for the resource, and how that was found out."""
    document = resolution.document
    asks = document.requirements
    words = [
        "signed results",
        "no sign-in" if asks.auth == "none" else "an access token",
    ]
    words += ["client certificates"] if asks.mtls else []
    words += ["proofs of possession (DPoP)"] if asks.dpop != "none" else []
    return AuthorityView(
        authority=resolution.authority,
        anchor=document.anchor,
        service=document.service,
        keys=tuple(sorted(resolution.keys.kids)),
        requirements=", ".join(words),
        sources=tuple(_format_source(source) for source in resolution.sources),
    )


def _format_source(source: Source) -> tuple[str, str, str, str]:
    return source.name, str(source.rank), str(source.verdict), source.why


def build_control_views(
    fields: tuple[FormField, ...], typed: dict[str, str] | None = None
) -> tuple[ControlView, ...]:
    """The controls of a form, filled with what was typed before, or with the schema's defaults."""
    return tuple(
        ControlView(
            id=f"in{index}",
            field=field,
            value=(typed or {}).get(field.name, "") if typed is not None else field.value,
            ticked=field.kind == "flag" and (typed.get(field.name) if typed else field.value) == "true",
        )
        for index, field in enumerate(fields)
    )


def build_resource_view(
    settings: GatewaySettings,
    resolution: Resolution,
    description: Description,
    result: Result,
    *,
    csrf: str,
    key: str,
    closed: AIIPError | None = None,
    typed: dict[str, str] | None = None,
    fault: AIIPError | None = None,
) -> ResourceView:
    """The page of a resource that was described. `closed` is what stands against invoking it."""
    uri = resolution.uri
    shut = closed or find_denial(uri, description)
    if shut is None and "POST" not in description.methods:
        words, code = "it cannot be invoked: it only describes itself", ""
    else:
        words, code = ("", "") if shut is None else (shut.message, shut.code.removeprefix("aiip."))
    return ResourceView(
        name=settings.name,
        uri=str(uri),
        address=build_gateway_url(settings, uri),
        title=description.title or uri.path.rpartition("/")[2] or resolution.authority,
        effects=str(description.effects),
        methods=", ".join(description.methods),
        output=""
        if description.output is None
        else _format_json_body(msgspec.json.encode(dict(description.output))),
        answered=build_authority_view(resolution),
        proof=build_proof_view(result),
        closed=words,
        closed_code=code,
        csrf=csrf,
        key=key,
        controls=build_control_views(build_form_fields(description.input), typed),
        fault="" if fault is None else fault.message,
        hint="" if fault is None else fault.hint or "",
    )


def build_result_view(settings: GatewaySettings, name: str, kept: StoredResult) -> ResultView:
    """The page of a result that was asked for with a form."""
    result = kept.result
    uri = result.resolution.uri
    text = _decode_text(result)
    here = f"/results/{name}"
    links = (
        (f"{here}/body", "The content, octet by octet"),
        (f"{here}/receipt", "The authority's receipt"),
        (f"{here}/gateway-receipt", "This gateway's own receipt"),
    )
    return ResultView(
        name=settings.name,
        uri=str(uri),
        address=build_gateway_url(settings, uri),
        status=result.status,
        good=result.status < 400,
        content_type=result.content_type or "",
        length=len(result.body),
        text=(text or "")[:_LONGEST_SHOWN],
        cut=text is not None and len(text) > _LONGEST_SHOWN,
        shown=text is not None,
        at=kept.at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        anchor=result.resolution.anchor,
        proof=build_proof_view(result),
        links=links,
        commands=_VERIFY.format(anchor=result.resolution.anchor, uri=uri.without_query),
        stream=build_stream_view(result.body)
        if parse_media_type(result.content_type) == "text/event-stream"
        else None,
    )


def _decode_text(result: Result) -> str | None:
    kind = parse_media_type(result.content_type)
    if kind in _TEXTS or kind.endswith("+json"):
        return _format_json_body(result.body)
    if kind.startswith("text/"):
        return result.body.decode("utf-8", "replace")
    return None


def _format_json_body(body: bytes) -> str:
    """JSON on lines, as long as it is not too long for that; anything else as it is."""
    if len(body) <= _LONGEST_SHOWN:
        try:
            return msgspec.json.format(body, indent=2).decode("utf-8", "replace")
        except msgspec.DecodeError:
            pass
    return body.decode("utf-8", "replace")


#: what is served under /static/: name -> (file, media type)
STATIC_FILES: Final = {
    "onym.css": (Path(__file__).parent.parent / "static" / "onym.css", "text/css"),
    "icon.svg": (Path(__file__).parent.parent / "static" / "icon.svg", "image/svg+xml"),
}


@cache
def get_template_environment() -> Environment:
    """The one Jinja environment of these pages."""
    found = make_template_environment("onym.server.gateway")
    found.filters["sentence"] = _format_sentence
    found.globals["asset"] = build_asset_url
    return found


@cache
def build_asset_url(name: str) -> str:
    """The address of a static file; it changes with its content."""
    return f"/static/{name}?v={hashlib.sha256(STATIC_FILES[name][0].read_bytes()).hexdigest()[:12]}"


def _format_sentence(text: str) -> str:
    """A message, as errors word it, with a capital letter and a full stop."""
    end = "" if text.endswith((".", "!", "?")) else "."
    return text[:1].upper() + text[1:] + end if text else ""


def render_view(view: View) -> str:
    """The whole HTML document."""
    members: dict[str, Any] = {field.name: getattr(view, field.name) for field in fields(view)}
    return get_template_environment().get_template(view.template).render(members)
