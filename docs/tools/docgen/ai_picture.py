"""docs/assets/ai-name.svg: a name resolved, invoked, verified, and the same through a gateway.

One colour is one value, wherever it stands; all of them are computed by the code that runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TypeAlias
from xml.sax.saxutils import escape

from docgen.drawing import BLUE, FAINT, GREEN, INK, ORANGE, PINK, TEAL, VIOLET, frame
from docgen.reference_aiip import BODY, example
from onym.ai.discovery_document import WELL_KNOWN
from onym.ai.endpoint.responses import JWKS, PREFIX
from onym.common.text import decode_base64url
from onym.uri.ai import AIURI, to_https

__all__ = ["URI", "ai_picture", "columns"]

URI = AIURI.parse("ai://factory.example/tool/add")
_GATEWAY = "https://gw.example/gateway"
_COLUMN, _LEFT, _TOP, _LINE = 330, 16, 88, 20
_NAME, _PATH, _KEY, _NONCE, _BODY, _PROOF = BLUE, ORANGE, VIOLET, PINK, GREEN, TEAL

Piece: TypeAlias = tuple[str, str]
Line: TypeAlias = tuple[Piece, ...]


def columns() -> dict[str, list[Line]]:
    """Title -> its lines, each of pieces of text and their colours."""
    token, key = example()
    claims = json.loads(decode_base64url(token.split(".")[1]))
    authority, path = URI.authority_text or "", URI.path
    origin: Line = (("https://", INK), (authority, _NAME))
    name: Line = ((authority, _NAME), (path, _PATH))
    kid, nonce, digest = _short(key.kid or ""), _short(claims["nonce"]), claims["res"]["cd"][:16] + "…"
    receipt: Line = (("AIIP-Receipt: ", INK), (_short(token), _PROOF))
    answer: list[Line] = [((f"{claims['res']['st']} OK", INK),), (("5", _BODY),), receipt]
    return {
        "1  resolve": [
            (("GET ", INK), *origin),
            ((f"    {WELL_KNOWN}", INK),),
            (("200 OK", INK),),
            (("service: ", INK), (f"…{PREFIX}", INK)),
            (("jwks: ", INK), (f"…{JWKS}", INK)),
            (("  kid: ", INK), (kid, _KEY)),
        ],
        "2  invoke": [
            (("POST ", INK), *origin),
            ((f"     {PREFIX}", INK),),
            (("     /", INK), *name),
            (("AIIP-Nonce: ", INK), (nonce, _NONCE)),
            ((BODY.decode(), INK),),
            *answer,
        ],
        "3  verify": [
            (("the receipt says", INK),),
            (("kid:   ", INK), (kid, _KEY)),
            (("iss:   ", INK), *origin),
            (("sub:   ai://", INK), *name),
            (("nonce: ", INK), (nonce, _NONCE)),
            (("rqh:   ", INK), ("hash of the request", INK)),
            (("cd:    ", INK), (digest, _BODY)),
            (("signature", _PROOF),),
        ],
        "or through a gateway": [
            (("POST ", INK), (_GATEWAY, INK)),
            (("     /", INK), *name),
            (("it does 1, 2 and 3", INK),),
            *answer,
            (("     the same, byte for byte", FAINT),),
            (("AIIP-Gateway-Receipt: its own", INK),),
        ],
    }


def ai_picture(*, narrow: bool = False) -> str:
    """The picture, as SVG text, two parts beside each other; `narrow` has one column, for a phone."""
    if not to_https(_GATEWAY, URI).endswith(f"/{URI.authority_text}{URI.path}"):
        raise ValueError("the picture shows another mapping than the one that runs")
    found = columns()
    described = ". ".join(
        f"{title}: " + "; ".join("".join(text for text, _ in line).strip() for line in lines)
        for title, lines in found.items()
    )
    beside = 1 if narrow else 2
    width = 2 * _LEFT + 296 - 10 if narrow else 2 * _LEFT + _COLUMN * beside - 10
    lines, y = [_name(width)], _TOP
    for start in range(0, len(found), beside):
        group = list(found.items())[start : start + beside]
        for number, (title, rows) in enumerate(group):
            lines += _drawn(_LEFT + number * _COLUMN, y, title, rows)
        y += _LINE * (max(len(rows) for _, rows in group) + 2)
    height = y - _LINE
    return frame(width, height, "An ai name: resolved, invoked, verified", described, lines)


def _short(text: str) -> str:
    return f"{text[:8]}…"


def _name(width: int) -> str:
    pieces = (("ai://", FAINT), (URI.authority_text or "", _NAME), (URI.path, _PATH))
    return f'<text x="{width // 2}" y="38" font-size="18" text-anchor="middle">{_spans(pieces)}</text>'


def _drawn(x: int, y: int, title: str, rows: list[Line]) -> Iterator[str]:
    yield f'<text x="{x}" y="{y}" font-size="14" fill="{INK}" font-weight="bold">{escape(title)}</text>'
    for row, pieces in enumerate(rows):
        yield (
            f'<text x="{x}" y="{y + 24 + row * _LINE}" font-size="13" xml:space="preserve">'
            f"{_spans(pieces)}</text>"
        )


def _spans(pieces: Line) -> str:
    return "".join(f'<tspan fill="{colour}">{escape(text)}</tspan>' for text, colour in pieces)
