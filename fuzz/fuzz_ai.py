"""Coverage-guided fuzzing of what strangers send about ai names: `python fuzz/fuzz_ai.py [CORPUS] [-runs=N]`.

Needs `atheris`. URIs and their mapping, Link header, head of a page, anchor document, key set, receipt: no
exception but Onym's own, canonical forms are stable, and nothing is taken for a receipt.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["onym"]):
    from onym.ai.discovery.pointers import find_head_links, find_pointers
    from onym.ai.discovery_document import parse_discovery_document
    from onym.errors import OnymError
    from onym.sign.keys import AuthorityKeys, read_authority_keys
    from onym.sign.receipts import verify_filed
    from onym.uri.ai import AIURI, from_target, to_path
    from onym.uri.iri import parse_user_input

KEYS = AuthorityKeys()


def test_one_input(data: bytes) -> None:
    """Give one input to every reader."""
    provider = atheris.FuzzedDataProvider(data)
    kind = provider.ConsumeIntInRange(0, 6)
    if kind == 0:
        names(provider.ConsumeUnicode(sys.maxsize))
    elif kind == 1:
        mapped(provider.ConsumeBytes(sys.maxsize))
    elif kind == 2:
        find_pointers([provider.ConsumeUnicode(sys.maxsize)], context="https://h.example/")
    elif kind == 3:
        find_head_links(provider.ConsumeBytes(sys.maxsize), "utf-8")
    else:
        signed(kind, provider.ConsumeBytes(sys.maxsize))


def names(text: str) -> None:
    """Raise AssertionError for a canonical form that is not stable."""
    for candidate in (text, f"ai://h.example/{text}", f"ai://h.example/x?{text}", f"ai://{text}/x"):
        try:
            target = AIURI.parse(candidate).target
        except OnymError:
            continue
        if str(AIURI.parse(str(target)).target) != str(target):
            raise AssertionError("the canonical form has another one")
    try:
        parse_user_input(text)
    except OnymError:
        return


def mapped(octets: bytes) -> None:
    """Raise AssertionError for a path of the gateway that stands for another."""
    path, _, query = octets.partition(b"?")
    try:
        uri = from_target("/gateway", b"/gateway/" + path, query)
    except OnymError:
        return
    back = b"/gateway/" + path + (b"?" + query if query else b"")
    if to_path("/gateway", uri).encode() != back:
        raise AssertionError("two paths for one name")


def signed(kind: int, octets: bytes) -> None:
    """Raise AssertionError where octets that nobody signed count."""
    try:
        if kind == 4:
            parse_discovery_document(octets, anchor="https://h.example", authority="h.example")
        elif kind == 5:
            read_authority_keys(octets)
        else:
            verify_filed(octets.decode("latin-1"), KEYS)
            raise AssertionError("a receipt without a key")
    except OnymError:
        return


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
