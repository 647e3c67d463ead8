"""docs/assets/ai-name.svg: a name resolved, invoked, verified, and the same through a gateway.

One colour is one value, wherever it stands; all of them are computed by the code that runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TypeAlias
from xml.sax.saxutils import escape

from docgen.reference_aiip import BODY, example
from onym.ai.discovery_document import WELL_KNOWN
from onym.ai.endpoint.responses import JWKS, PREFIX
from onym.common.text import decode_base64url
from onym.uri.ai import AIURI, to_https

__all__ = ["URI", "ai_picture", "columns"]

URI = AIURI.parse("ai://factory.example/tool/add")
_GATEWAY = "https://gw.example/gateway"
_COLUMN, _LEFT, _TOP, _LINE, _CHAR = 296, 16, 112, 20, 7.85
_PLAIN, _FAINT = "#374151", "#9ca3af"
_NAME, _PATH, _KEY, _NONCE, _BODY, _PROOF = (
    "#1d4ed8", "#b45309", "#7c3aed", "#be185d", "#15803d", "#0f766e",
)  # fmt: skip

Piece: TypeAlias = tuple[str, str]
Line: TypeAlias = tuple[Piece, ...]


def columns() -> dict[str, list[Line]]:
    """Title -> its lines, each of pieces of text and their colours."""
    token, key = example()
    claims = json.loads(decode_base64url(token.split(".")[1]))
    authority, path = URI.authority_text or "", URI.path
    origin: Line = (("https://", _PLAIN), (authority, _NAME))
    name: Line = ((authority, _NAME), (path, _PATH))
    kid, nonce, digest = _short(key.kid or ""), _short(claims["nonce"]), claims["res"]["cd"][:16] + "…"
    receipt: Line = (("AIIP-Receipt: ", _PLAIN), (_short(token), _PROOF))
    answer: list[Line] = [((f"{claims['res']['st']} OK", _PLAIN),), (("5", _BODY),), receipt]
    return {
        "1  resolve": [
            (("GET ", _PLAIN), *origin),
            ((f"    {WELL_KNOWN}", _PLAIN),),
            (("200 OK", _PLAIN),),
            (("service: ", _PLAIN), (f"…{PREFIX}", _PLAIN)),
            (("jwks: ", _PLAIN), (f"…{JWKS}", _PLAIN)),
            (("  kid: ", _PLAIN), (kid, _KEY)),
        ],
        "2  invoke": [
            (("POST ", _PLAIN), *origin),
            ((f"     {PREFIX}", _PLAIN),),
            (("     /", _PLAIN), *name),
            (("AIIP-Nonce: ", _PLAIN), (nonce, _NONCE)),
            ((BODY.decode(), _PLAIN),),
            *answer,
        ],
        "3  verify": [
            (("the receipt says", _PLAIN),),
            (("kid:   ", _PLAIN), (kid, _KEY)),
            (("iss:   ", _PLAIN), *origin),
            (("sub:   ai://", _PLAIN), *name),
            (("nonce: ", _PLAIN), (nonce, _NONCE)),
            (("rqh:   ", _PLAIN), ("hash of the request", _PLAIN)),
            (("cd:    ", _PLAIN), (digest, _BODY)),
            (("signature", _PROOF),),
        ],
        "or through a gateway": [
            (("POST ", _PLAIN), (_GATEWAY, _PLAIN)),
            (("     /", _PLAIN), *name),
            (("it does 1, 2 and 3", _PLAIN),),
            *answer,
            (("     the same, byte for byte", _FAINT),),
            (("AIIP-Gateway-Receipt: its own", _PLAIN),),
        ],
    }


def ai_picture() -> str:
    """The picture, as SVG text. Its description says the same in words."""
    if not to_https(_GATEWAY, URI).endswith(f"/{URI.authority_text}{URI.path}"):
        raise ValueError("the picture shows another mapping than the one that runs")
    found = columns()
    width = 2 * _LEFT + _COLUMN * len(found) - 10
    height = _TOP + _LINE * max(map(len, found.values())) + 8
    described = ". ".join(
        f"{title}: " + "; ".join("".join(text for text, _ in line).strip() for line in lines)
        for title, lines in found.items()
    )
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            'aria-labelledby="title desc" font-family="ui-monospace, DejaVu Sans Mono, monospace">'
        ),
        '<title id="title">An ai name: resolved, invoked, verified</title>',
        f'<desc id="desc">{escape(described)}</desc>',
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        _name(width),
    ]
    for number, (title, rows) in enumerate(found.items()):
        lines += _drawn(number, title, rows, width)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _short(text: str) -> str:
    return f"{text[:8]}…"


def _name(width: int) -> str:
    pieces = (("ai://", _FAINT), (URI.authority_text or "", _NAME), (URI.path, _PATH))
    return f'<text x="{width // 2}" y="38" font-size="18" text-anchor="middle">{_spans(pieces)}</text>'


def _drawn(number: int, title: str, rows: list[Line], width: int) -> Iterator[str]:
    x = _LEFT + number * _COLUMN
    yield f'<path d="M{width // 2} 50V60H{x + 100}V70" stroke="{_FAINT}" fill="none"/>'
    yield f'<text x="{x}" y="88" font-size="14" fill="{_PLAIN}" font-weight="bold">{escape(title)}</text>'
    for row, pieces in enumerate(rows):
        yield (
            f'<text x="{x}" y="{_TOP + row * _LINE}" font-size="13" xml:space="preserve">'
            f"{_spans(pieces)}</text>"
        )


def _spans(pieces: Line) -> str:
    return "".join(f'<tspan fill="{colour}">{escape(text)}</tspan>' for text, colour in pieces)
