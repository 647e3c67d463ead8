"""Hypothesis strategies for llm URIs: values, texts in every allowed spelling, and texts near to them.

    from hypothesis import given
    from onym.testing.llm_strategies import llm_uris

    @given(llm_uris())
    def test_my_router_keeps_the_model(uri):
        assert route(uri).model == uri.model

Needs `hypothesis`, which Onym itself does not. No key that comes out is real.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from onym.uri._names import PROVIDER_NAMES, branch, is_secret
from onym.uri._percent import UNRESERVED, decode
from onym.uri._query_read import READERS
from onym.uri.llm import LLMURI

__all__ = [
    "extra_params",
    "hosts",
    "keys",
    "labels",
    "llm_texts",
    "llm_uris",
    "models",
    "near_llm_texts",
    "well_known_params",
]

_CONTROLS = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0))))
_RAW_IN_PATH = UNRESERVED + "!$&'()*+,;=:@"
_RAW_IN_VALUE = UNRESERVED + "!$'()*,;=:@/?"
_KNOWN_PAIRS = (
    "temp=0.70 temp=+1 t%65mp=0 max_tokens=007 top_p=1.0 stream=TRUE cache=false stop=a,b stop=a%2Cb seed=-1 "
    "system=a+b format=JSON auth=env:KEY retries=0 timeout=1"
)
_OTHER_PAIRS = "x=1 z.y=a web=%7b%22a%22:1%7d flag =v a..b=1 base_url=x key=s temprature=1 maxTokens=5 n=007"
_PIECES = (
    'llm:// llm: // / ? # & = . .. @ : % %2 %2F %00 %FF %ff%fe [ ] [::1] { } " temp= stop= a.b= a= api_key= '
    "auth= 0 1e5 - + %7B %5B %22 %5Cud800 é gpt-5 host true ,"
)


def _text(*, min_size: int = 0, max_size: int = 20, without: str = "") -> st.SearchStrategy[str]:
    characters = st.characters(codec="utf-8", exclude_characters=without)
    common = st.text(UNRESERVED, min_size=min_size, max_size=max_size)
    return common | st.text(characters, min_size=min_size, max_size=max_size)


def labels() -> st.SearchStrategy[str]:
    """App-labels: any text without control characters."""
    return _text(min_size=1, without=_CONTROLS)


def keys() -> st.SearchStrategy[str]:
    """API keys: any text without blanks and control characters. None has the shape of a provider's."""
    return _text(min_size=1, without=_CONTROLS + " ").filter(lambda key: key != "***")


def hosts() -> st.SearchStrategy[str]:
    """Host names, aliases of one word, IPv4 and IPv6 addresses, as `LLMURI.host` gives them."""
    label = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
    name = st.lists(label, min_size=1, max_size=4).map(".".join)
    usual = st.sampled_from(
        ["api.openai.com", "api.anthropic.com", "localhost", "openai", "embedded", "ollama"]
    )
    address = st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str)
    return usual | name | address


def models() -> st.SearchStrategy[tuple[str, ...]]:
    """Models as segments; some hold a slash, a colon or another script."""
    usual = st.sampled_from([("gpt-5",), ("anthropic", "claude-sonnet-4.5"), ("llama3:8b",), ("org/model",)])
    segment = _text(min_size=1, without=_CONTROLS + "/\\").filter(lambda text: text not in (".", ".."))
    return usual | st.lists(segment, min_size=1, max_size=4).map(tuple)


def well_known_params() -> st.SearchStrategy[dict[str, Any]]:
    """Some of the parameters of draft section 6, each within its range."""
    return st.fixed_dictionaries(
        {},
        optional={
            "temp": st.floats(0, 2).filter(_short).map(_unsigned_zero),
            "max_tokens": st.integers(1, 2**63 - 1),
            "top_p": st.floats(0, 1).filter(_short).map(_unsigned_zero),
            "top_k": st.integers(0, 2**63 - 1),
            "stop": st.lists(_text(min_size=1), min_size=1, max_size=4).map(tuple),
            "seed": st.integers(-(2**63), 2**63 - 1),
            "stream": st.booleans(),
            "timeout": st.integers(1, 2**31 - 1),
            "retries": st.integers(0, 100),
            "cache": st.booleans(),
            "format": st.sampled_from(["text", "json", "json_schema"]),
            "system": _text(max_size=60),
        },
    )


def _short(number: float) -> bool:
    # what needs more than 32 characters in decimal notation can't stand in a URI
    return number == 0 or abs(number) > 1e-12


def _unsigned_zero(number: float) -> float:
    return number + 0.0


def extra_params() -> st.SearchStrategy[dict[str, Any]]:
    """Parameters that the draft does not define: flags, numbers, text, lists, objects."""
    fractions = st.floats(-1e15, 1e15).filter(_short).map(_unsigned_zero)
    numbers = st.integers(-(10**30), 10**30) | fractions
    scalars = (
        st.booleans() | numbers | _text() | st.sampled_from(["true", "12", "-0.5", '"x"', "{", "[1]", "null"])
    )
    members = _text(max_size=8).filter(lambda name: not is_secret(name))
    json_values = st.recursive(
        st.none() | scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(members, inner, max_size=3),
        max_leaves=8,
    )
    values = scalars | st.lists(json_values, max_size=3) | st.dictionaries(members, json_values, max_size=3)
    names = _text(max_size=12, without=_CONTROLS).filter(_is_free)
    return st.dictionaries(names, values, max_size=4).filter(lambda params: not any("." in n for n in params))


def _is_free(name: str) -> bool:
    root = branch(name)[0]
    return root not in READERS and root not in PROVIDER_NAMES and not is_secret(name)


@st.composite
def llm_uris(draw: st.DrawFn, *, with_keys: bool = True) -> LLMURI:
    """Any llm URI; `with_keys=False` for those that may be shown, pickled and compared by their text."""
    key = draw(st.none() | keys()) if with_keys else None
    label = draw(labels()) if key is not None else draw(st.none() | labels())
    return LLMURI.build(
        draw(hosts()),
        model=draw(models()),
        label=label,
        key=key,
        port=draw(st.none() | st.integers(1, 65535)),
        params={**draw(well_known_params()), **draw(extra_params())},
        fragment=draw(st.none() | _text()),
    )


@st.composite
def llm_texts(draw: st.DrawFn) -> str:
    """The text of an llm URI in any spelling that `LLMURI.parse` takes, canonical or not."""
    scheme = draw(st.sampled_from(["llm", "LLM", "lLm"]))
    userinfo = draw(st.sampled_from(["", "my-app@", "my-app:k@", ":k@", "a:b:c@", "a!:%6b@", "@", "u:@"]))
    host = draw(
        st.sampled_from(
            ["api.openai.com", "API.example", "%68ost", "a%2Fb", "[::1]", "[0:0::1]", "127.0.0.1"]
        )
    )
    port = draw(st.sampled_from(["", ":", ":443", ":0443", ":11434", ":8080"]))
    segments = draw(st.lists(_spelled(_RAW_IN_PATH, min_size=1).filter(_no_dots), min_size=1, max_size=3))
    pairs = draw(st.lists(_pair(), max_size=5, unique_by=_name))
    query = draw(st.sampled_from(["", "?"]))
    if pairs:
        query = f"?{'&'.join(pairs)}"
    fragment = draw(st.just("") | _spelled(_RAW_IN_VALUE).map("#{}".format))
    return f"{scheme}://{userinfo}{host}{port}/{'/'.join(segments)}{query}{fragment}"


def _name(pair: str) -> str:
    name = decode(pair.partition("=")[0], component="query")
    return PROVIDER_NAMES.get(name, name.partition(".")[0])


def _no_dots(raw: str) -> bool:
    return raw.replace("%2e", ".").replace("%2E", ".").strip(".") != ""


@st.composite
def _spelled(draw: st.DrawFn, raw: str, *, min_size: int = 0) -> str:
    """Characters of `raw`, some of them percent-encoded in either case."""
    letters = draw(st.lists(st.sampled_from(raw), min_size=min_size, max_size=12))
    forms = ("{0}", "%{1:02x}", "%{1:02X}")
    return "".join(draw(st.sampled_from(forms)).format(letter, ord(letter)) for letter in letters)


def _pair() -> st.SearchStrategy[str]:
    known = st.sampled_from(_KNOWN_PAIRS.split(" "))
    other = st.sampled_from(_OTHER_PAIRS.split(" "))
    spelled = _spelled(_RAW_IN_VALUE)
    return known | other | spelled.map("u{}".format) | spelled.map("v={}".format)


def near_llm_texts() -> st.SearchStrategy[str]:
    """Texts made of what llm URIs are made of, mostly none, lone surrogates among them."""
    pieces = st.sampled_from([*_PIECES.split(" "), "\r\n", "\x00", " ", "\ud800"])
    texts = st.lists(pieces, max_size=25).map("".join)
    return texts | texts.map("llm://host/m?{}".format)
