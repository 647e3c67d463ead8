"""Receipts signed and verified a second: `python bench/receipts.py [--json FILE] [--rounds N]`.

Onym signs and verifies whole receipts: claims, digest of the body, strict parsing, all of AIIP/HTTPS v1 3.8
but the replay store. `jwcrypto` signs and verifies the same claims as a compact JWS, `cryptography` the same
octets with nothing around them: what no verifier in Python can go below. Rounds are interleaved, so that a
busy moment of the machine falls on all. Figures are medians on one core; ratios are to bare cryptography.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from operator import truediv
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from jwcrypto import jwk, jws  # type: ignore[import-untyped]

from onym.sign.keys import SigningKey, read_authority_keys
from onym.sign.receipts import (
    Expected,
    Receipt,
    content_digest,
    make_receipt_id,
    request_hash,
    sign_receipt,
    verify_receipt,
)

ALGORITHMS = ("Ed25519", "ES256")
NOW = 1_760_000_000.0
BODY = json.dumps({"text": "x" * 1000}).encode()
Way = Callable[[], object]


def receipt() -> Receipt:
    """One of ordinary size."""
    asked = request_hash(
        method="POST",
        target="ai://bank.example/payments?amount=10&currency=USD",
        digest=content_digest(b"{}"),
        content_type="application/json",
        idempotency_key="key-1",
    )
    return Receipt(
        issuer="https://bank.example",
        subject="ai://bank.example/payments",
        audience="https://app.example",
        issued=NOW,
        expires=NOW + 120,
        id=make_receipt_id(),
        nonce=make_receipt_id(),
        request=asked,
        status=200,
        content_type="application/json",
        digest=content_digest(BODY),
        length=len(BODY),
    )


def expected(of: Receipt) -> Expected:
    """What its caller expects."""
    return Expected(
        issuer=of.issuer,
        subject=of.subject,
        audience=of.audience,
        nonce=str(of.nonce),
        request=of.request,
        status=of.status,
        content_type=of.content_type,
        body=BODY,
    )


def ways(algorithm: str) -> dict[tuple[str, str], Way]:
    """Each peer's way to sign, and to verify, by (what, who)."""
    key = SigningKey.generate(algorithm).with_thumbprint()
    keys = read_authority_keys(json.dumps({"keys": [key.public()]}).encode())
    one = receipt()
    token = sign_receipt(one, key)
    known = expected(one)
    signed = token.rpartition(".")[0].encode()
    found: dict[tuple[str, str], Way] = {
        ("sign", "onym"): lambda: sign_receipt(one, key),
        ("verify", "onym"): lambda: verify_receipt(token, keys, known, at=NOW, seen=lambda *_: False),
    }
    return found | _jwcrypto(algorithm, key, token) | _bare(key.native.private_key, signed)


def _jwcrypto(algorithm: str, key: SigningKey, token: str) -> dict[tuple[str, str], Way]:
    # it knows Ed25519 by its older name alone
    name = "EdDSA" if algorithm == "Ed25519" else algorithm
    data = {each: value for each, value in json.loads(key.secret().reveal()).items() if each != "alg"}
    private = jwk.JWK(**data)
    public = jwk.JWK(**json.loads(private.export_public()))
    payload = token.split(".")[1]
    claims = json.dumps(json.loads(_decoded(payload)))
    head = json.dumps({"alg": name, "kid": key.kid, "typ": "aiip-receipt+jwt"})

    def sign() -> str:
        made = jws.JWS(json.dumps(json.loads(claims)).encode())
        made.add_signature(private, None, head)
        return str(made.serialize(compact=True))

    own = sign()

    def verify() -> Any:
        read = jws.JWS()
        read.deserialize(own, public)
        return json.loads(read.payload)

    return {("sign", "jwcrypto"): sign, ("verify", "jwcrypto"): verify}


def _decoded(text: str) -> bytes:
    from base64 import urlsafe_b64decode

    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _bare(private: Any, signed: bytes) -> dict[tuple[str, str], Way]:
    more = (ec.ECDSA(hashes.SHA256()),) if isinstance(private, ec.EllipticCurvePrivateKey) else ()
    public, signature = private.public_key(), private.sign(signed, *more)
    return {
        ("sign", "cryptography"): lambda: private.sign(signed, *more),
        ("verify", "cryptography"): lambda: public.verify(signature, signed, *more),
    }


def measure(rounds: int, count: int) -> dict[tuple[str, str, str], list[float]]:
    """Times a second, by (algorithm, what, who) and round; a first round warms up and does not count."""
    every = {(algorithm, *name): way for algorithm in ALGORITHMS for name, way in ways(algorithm).items()}
    rates: dict[tuple[str, str, str], list[float]] = {name: [] for name in every}
    for turn in range(rounds + 1):
        for name, way in every.items():
            start = time.perf_counter()
            for _ in range(count):
                way()
            took = time.perf_counter() - start
            if turn:
                rates[name].append(count / took)
    return rates


def table(rates: dict[tuple[str, str, str], list[float]]) -> list[dict[str, Any]]:
    """A row for each: median, spread, and the median of its ratios to bare cryptography, round by round."""
    return [
        {
            "algorithm": algorithm,
            "does": does,
            "who": who,
            "per_second": round(statistics.median(own)),
            "slowest": round(min(own)),
            "fastest": round(max(own)),
            "of_bare_cryptography": round(
                statistics.median(map(truediv, own, rates[algorithm, does, "cryptography"])), 2
            ),
        }
        for (algorithm, does, who), own in sorted(rates.items())
    ]


def main() -> None:
    """Print the table, and write it as JSON where asked."""
    parser = argparse.ArgumentParser(
        description="Receipts signed and verified a second, beside other libraries."
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--count", type=int, default=300, help="receipts in a round")
    parser.add_argument("--json")
    options, _ = parser.parse_known_args()
    rows = table(measure(options.rounds, options.count))
    print("| algorithm | does | who | a second | slowest to fastest | of bare cryptography |")
    print("|---|---|---|--:|--:|--:|")
    for row in rows:
        spread = f"{row['slowest']} to {row['fastest']}"
        print(
            f"| {row['algorithm']} | {row['does']} | {row['who']} | {row['per_second']} | {spread}"
            f" | {row['of_bare_cryptography']:.2f} |"
        )
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
