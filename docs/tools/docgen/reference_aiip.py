"""docs/reference/aiip.md: the binding as it is spoken, tables and values computed by the code itself."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from docgen.text import GENERATED, cell, code, table
from onym.ai.discovery import pointers
from onym.ai.discovery_document import MAX_ENDPOINTS, MAX_OCTETS, WELL_KNOWN
from onym.ai.endpoint import Limits
from onym.ai.endpoint.idempotency import RETENTION_SECONDS
from onym.ai.endpoint.policy import MAX_POLICY
from onym.ai.endpoint.responses import JWKS, PREFIX, TYPES
from onym.ai.endpoint.signing import LIFE
from onym.ai.exchange import MAX_EVENT
from onym.ai.messages import CODES, MAX_FIELDS
from onym.ai.replay import MAX_REPLAY_IDS
from onym.ai.settings import LONGEST_LIFE, MAX_PIN_SECONDS, NEGATIVE_LIFE, SHORTEST_LIFE
from onym.common.text import decode_base64url
from onym.sign.keys import (
    LEEWAY,
    MAX_AUTHORITY_KEY_SET,
    MAX_AUTHORITY_KEYS,
    MAX_HISTORY,
    RECEIPT_ALGORITHMS,
    SigningKey,
)
from onym.sign.receipts import (
    GATEWAY,
    MAX_LIFE,
    MAX_RECEIPT,
    RECEIPT,
    Receipt,
    StreamChain,
    content_digest,
    request_hash,
    sign_receipt,
)
from onym.uri.ai import AIURI, MAX_CANONICAL_LENGTH, REFUSALS, to_https
from onym.uri.secret import Secret

__all__ = ["BODY", "EVENTS", "KEY", "Asked", "aiip_page", "asked", "example", "worked_stream"]

_TEMPLATE = Path(__file__).with_name("aiip.template")
_PLACE = re.compile(r"@@(\w+)@@")
#: the key of RFC 8037 A.1, which everybody knows
KEY = {
    "kty": "OKP",
    "crv": "Ed25519",
    "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
    "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
}
BODY = b'{"a": 2, "b": 3}'
EVENTS = (("1", "message", '{"text":"The "}'), ("2", "message", '{"text":"sea."}'), ("3", "result", "2"))
_ANCHOR = "https://factory.example"
_NONCE = "bm9uY2Utb2YtMTI4LWJpdHM"
_TIME = 1_795_338_000
_LABELS = ("", "method", "target", "Content-Digest", "Content-Type", "Idempotency-Key")


class Asked(NamedTuple):
    """One request, by what its hash is over."""

    method: str
    target: str
    digest: str | None
    content_type: str | None
    idempotency_key: str | None

    @property
    def lines(self) -> list[str]:
        """The six lines."""
        return ["aiip-req-v1", *(each or "-" for each in self)]

    @property
    def hash(self) -> str:
        """`rqh`."""
        return request_hash(**self._asdict())


def asked() -> tuple[Asked, Asked]:
    """The requests of the page: a description, and an invocation."""
    uri = "ai://factory.example/tool/add"
    return (
        Asked("GET", uri, None, None, None),
        Asked("POST", f"{uri}?unit=m", content_digest(BODY), "application/json", "8e03978e-40d5"),
    )


def example() -> tuple[str, SigningKey]:
    """The receipt of the second request, and the key that signed it."""
    key = SigningKey.from_jwk(Secret(json.dumps(KEY)), algorithm="Ed25519").with_thumbprint()
    body = b"5"
    receipt = Receipt(
        issuer=_ANCHOR,
        subject="ai://factory.example/tool/add",
        audience="anonymous",
        issued=_TIME,
        expires=_TIME + LIFE,
        id="anRpLW9mLTEyOC1iaXRzLi4",
        nonce=_NONCE,
        request=asked()[1].hash,
        status=200,
        content_type="application/json",
        digest=content_digest(body),
        length=len(body),
    )
    return sign_receipt(receipt, key), key


def worked_stream() -> list[str]:
    """The chain over `EVENTS`, from c0 on, as in Content-Digest."""
    chain = StreamChain(asked()[1].hash)
    values = [chain.end.digest]
    for each in EVENTS:
        chain.add(*each)
        values.append(chain.end.digest)
    return values


def aiip_page() -> str:
    """The page."""
    found = _values() | {
        "refusals": _refusals(),
        "mapping": _mapping(),
        "requests": "\n\n".join(map(_request, asked())),
        "example": _example(),
        "stream": _stream(),
        "codes": _codes(),
        "limits": _limits(),
        "fixed": _fixed(),
    }
    text = _TEMPLATE.read_text(encoding="utf-8")
    unused = found.keys() - set(_PLACE.findall(text))
    if unused:
        raise ValueError(f"the template has no place for {', '.join(sorted(unused))}")
    return f"{GENERATED}\n" + _PLACE.sub(lambda match: found[match[1]], text)


def _values() -> dict[str, str]:
    return {
        "well_known": WELL_KNOWN,
        "jwks": JWKS,
        "prefix": PREFIX,
        "problems": TYPES,
        "typ": RECEIPT,
        "gateway_typ": GATEWAY,
        "algorithms": ", ".join(f"`{each}`" for each in RECEIPT_ALGORITHMS),
    } | {
        name: f"{number:,.0f}"
        for name, number in {
            "max_uri": MAX_CANONICAL_LENGTH,
            "anchor_octets": MAX_OCTETS,
            "max_endpoints": MAX_ENDPOINTS,
            "longest_pin": MAX_PIN_SECONDS,
            "shortest": SHORTEST_LIFE,
            "longest": LONGEST_LIFE,
            "negative": NEGATIVE_LIFE,
            "max_receipt": MAX_RECEIPT,
            "max_life": MAX_LIFE,
            "life": LIFE,
            "leeway": LEEWAY,
            "max_set": MAX_AUTHORITY_KEY_SET,
            "max_keys": MAX_AUTHORITY_KEYS,
            "max_history": MAX_HISTORY,
        }.items()
    }


def _refusals() -> str:
    rows = [
        [code(f"ai.{name}"), cell(why.format("path or query")), cell(hint)]
        for name, (why, hint) in REFUSALS.items()
    ]
    return table(["code", "refused", "instead"], rows).rstrip()


def _mapping() -> str:
    service = f"{_ANCHOR}{PREFIX}"
    uris = ("ai://factory.example/tool/add?unit=m", "ai://factory.example/", "ai:/agent/x")
    rows = [[code(each), code(to_https(service, AIURI.parse(each)))] for each in uris]
    return table(["ai URI", "address"], rows).rstrip()


def _request(each: Asked) -> str:
    lines = [f"{line:<78} {label}".rstrip() for line, label in zip(each.lines, _LABELS, strict=True)]
    return "\n".join(["```text", *lines, "", f"rqh = {each.hash}", "```"])


def _example() -> str:
    token, key = example()
    head, payload, _ = token.split(".")
    shown = [_pretty(decode_base64url(each)) for each in (head, payload)]
    wrapped = "\n".join(token[at : at + 100] for at in range(0, len(token), 100))
    public = json.dumps(key.public(), indent=1)
    return "\n".join(
        [
            f"```json\n{public}\n```\n",
            f"```json\n{shown[0]}\n```\n",
            f"```json\n{shown[1]}\n```\n",
            f"The receipt, without its line ends:\n\n```text\n{wrapped}\n```",
        ]
    )


def _pretty(octets: bytes) -> str:
    return json.dumps(json.loads(octets), indent=1)


def _stream() -> str:
    values = worked_stream()
    rows = [["c0", "", "", "", code(values[0])]]
    rows += [
        [f"c{number}", *(code(part) for part in event), code(value)]
        for number, (event, value) in enumerate(zip(EVENTS, values[1:], strict=True), 1)
    ]
    return (
        "For the second request above:\n\n"
        + table(["", "id", "event", "data", "value"], rows)
        + f'\nThe receipt\'s `str` is `{{"n": {len(EVENTS)}, "cd": "{values[-1]}"}}`.'
    )


def _codes() -> str:
    rows = [
        [code(row.name), str(row.status), cell(row.title), "yes" if row.retryable else ""]
        for row in CODES.values()
    ]
    return table(["code", "status", "", "a later try may do better"], rows).rstrip()


def _limits() -> str:
    units = {"seconds": "s", "stream_seconds": "s", "body": "bytes", "answer": "bytes"}
    units |= dict.fromkeys(("stream_bytes", "event_bytes", "kept", "kept_total"), "bytes")
    rows = [
        [
            code(each.name),
            "half of `concurrent` or of `threads`, whichever is less"
            if each.default is None
            else _amount(each.default, units.get(each.name, "")),
        ]
        for each in _fields(Limits)
    ]
    return table(["limit", ""], rows).rstrip()


def _fixed() -> str:
    rows: list[tuple[str, float, str]] = [
        ("characters of a canonical ai URI", MAX_CANONICAL_LENGTH, ""),
        ("header fields of a request", MAX_FIELDS, ""),
        ("an anchor document", MAX_OCTETS, "bytes"),
        ("rows of `endpoints`", MAX_ENDPOINTS, ""),
        ("a receipt", MAX_RECEIPT, "bytes"),
        ("a key set", MAX_AUTHORITY_KEY_SET, "bytes"),
        ("keys of a set; of a history", MAX_AUTHORITY_KEYS, f"; {MAX_HISTORY}"),
        ("one event, at a client", MAX_EVENT, "characters"),
        ("links that are read; their bytes", pointers.MAX_LINKS, f"; {pointers.MAX_LINK_BYTES:,}"),
        ("of a page, searched for links", pointers.MAX_PAGE_BYTES, "bytes"),
        ("receipts that a client remembers at one time", MAX_REPLAY_IDS, ""),
        ("life of an idempotency key", RETENTION_SECONDS, "s"),
        ("Cedar policies", MAX_POLICY, "characters"),
    ]
    return table(["", "at most"], [[name, _amount(number, unit)] for name, number, unit in rows]).rstrip()


def _amount(number: Any, unit: str) -> str:
    return f"{number:,.0f}{'' if unit.startswith(';') else ' '}{unit}".rstrip()


def _fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)
