"""What the pages show: frozen values, made from results; the templates read nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import msgspec

from onym.ai.gateway.doors import is_open
from onym.ai.gateway.fields import media_type
from onym.ai.gateway.form import Field, fields_of
from onym.server.gateway.stream_view import StreamView, stream_view
from onym.uri.ai_map import to_path

if TYPE_CHECKING:
    from onym.ai.gateway.problems import Refusal
    from onym.ai.records import Description, Resolution, Result, Source
    from onym.errors import AIIPError
    from onym.server.gateway.settings import GatewaySettings
    from onym.server.gateway.shelf import Kept
    from onym.server.gateway.visit import Visit
    from onym.uri.ai import AIURI

__all__ = [
    "ControlView",
    "HomeView",
    "ProblemView",
    "ResourceView",
    "ResultView",
    "View",
    "answered_by",
    "control_views",
    "gateway_address",
    "problem_view",
    "proof_of",
    "resource_view",
    "result_view",
]

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
    field: Field
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


def gateway_address(settings: GatewaySettings, uri: AIURI) -> str:
    """The HTTPS address under which the gateway serves this canonical URI."""
    return settings.base_url + to_path(settings.prefix, uri)


def problem_view(settings: GatewaySettings, visit: Visit, refusal: Refusal) -> ProblemView:
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
        canonical_href=_address_of(settings, canonical),
    )


def _address_of(settings: GatewaySettings, canonical: str) -> str:
    from onym.errors import URIError
    from onym.uri.ai import AIURI

    try:
        return gateway_address(settings, AIURI.parse(canonical)) if canonical else ""
    except URIError:
        return ""


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def proof_of(result: Result) -> ProofView:
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
        ("Signed at", _moment(receipt.issued)),
        ("Status", str(receipt.status)),
        bound,
        ("Request hash", receipt.request),
        ("Receipt id", receipt.id),
    )
    known = [
        CheckView(clause=_CHECKS[each][0], words=_CHECKS[each][1])
        for each in result.checks
        if each in _CHECKS
    ]
    return ProofView(rows=rows, checks=tuple(known), token=result.token)


def answered_by(resolution: Resolution) -> AuthorityView:
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
        sources=tuple(_source(each) for each in resolution.sources),
    )


def _source(source: Source) -> tuple[str, str, str, str]:
    return source.name, str(source.rank), str(source.verdict), source.why


def control_views(fields: tuple[Field, ...], typed: dict[str, str] | None = None) -> tuple[ControlView, ...]:
    """The controls of a form, filled with what was typed before, or with the schema's defaults."""
    return tuple(
        ControlView(
            id=f"in{index}",
            field=each,
            value=(typed or {}).get(each.name, "") if typed is not None else each.value,
            ticked=each.kind == "flag" and (typed.get(each.name) if typed else each.value) == "true",
        )
        for index, each in enumerate(fields)
    )


def resource_view(
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
    shut = closed or is_open(uri, description)
    if shut is None and "POST" not in description.methods:
        words, code = "it cannot be invoked: it only describes itself", ""
    else:
        words, code = ("", "") if shut is None else (shut.message, shut.code.removeprefix("aiip."))
    return ResourceView(
        name=settings.name,
        uri=str(uri),
        address=gateway_address(settings, uri),
        title=description.title or uri.path.rpartition("/")[2] or resolution.authority,
        effects=str(description.effects),
        methods=", ".join(description.methods),
        output="" if description.output is None else _pretty(msgspec.json.encode(dict(description.output))),
        answered=answered_by(resolution),
        proof=proof_of(result),
        closed=words,
        closed_code=code,
        csrf=csrf,
        key=key,
        controls=control_views(fields_of(description.input), typed),
        fault="" if fault is None else fault.message,
        hint="" if fault is None else fault.hint or "",
    )


def result_view(settings: GatewaySettings, name: str, kept: Kept) -> ResultView:
    """The page of a result that was asked for with a form."""
    result = kept.result
    uri = result.resolution.uri
    text = _as_text(result)
    here = f"/results/{name}"
    links = (
        (f"{here}/body", "The content, octet by octet"),
        (f"{here}/receipt", "The authority's receipt"),
        (f"{here}/gateway-receipt", "This gateway's own receipt"),
    )
    return ResultView(
        name=settings.name,
        uri=str(uri),
        address=gateway_address(settings, uri),
        status=result.status,
        good=result.status < 400,
        content_type=result.content_type or "",
        length=len(result.body),
        text=(text or "")[:_LONGEST_SHOWN],
        cut=text is not None and len(text) > _LONGEST_SHOWN,
        shown=text is not None,
        at=kept.at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        anchor=result.resolution.anchor,
        proof=proof_of(result),
        links=links,
        commands=_VERIFY.format(anchor=result.resolution.anchor, uri=uri.without_query),
        stream=stream_view(result.body) if media_type(result.content_type) == "text/event-stream" else None,
    )


def _as_text(result: Result) -> str | None:
    kind = media_type(result.content_type)
    if kind in _TEXTS or kind.endswith("+json"):
        return _pretty(result.body)
    if kind.startswith("text/"):
        return result.body.decode("utf-8", "replace")
    return None


def _pretty(body: bytes) -> str:
    """JSON on lines, as long as it is not too long for that; anything else as it is."""
    if len(body) <= _LONGEST_SHOWN:
        try:
            return msgspec.json.format(body, indent=2).decode("utf-8", "replace")
        except msgspec.DecodeError:
            pass
    return body.decode("utf-8", "replace")
