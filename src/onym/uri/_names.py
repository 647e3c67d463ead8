"""Parameter names: which are well-known, and what the others look like (draft 4.4 and 6, docs/decisions).

Names are case-sensitive (draft 4.4). Spellings are folded only to recognise what must not pass: names
that would redirect or replace a request, and names that carry credentials.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from onym.uri._registered import WELL_KNOWN

__all__ = [
    "PROVIDER_NAMES",
    "WELL_KNOWN",
    "branch",
    "closest",
    "fold",
    "is_redirecting",
    "is_secret",
    "shown",
]

#: what providers and SDKs call a well-known parameter. One of these beside it is a clash
PROVIDER_NAMES: Final = {
    "temperature": "temp",
    "maxTokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "maxCompletionTokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "maxOutputTokens": "max_tokens",
    "max_tokens_to_sample": "max_tokens",
    "max_new_tokens": "max_tokens",
    "num_predict": "max_tokens",
    "n_predict": "max_tokens",
    "topP": "top_p",
    "topK": "top_k",
    "stop_sequences": "stop",
    "stopSequences": "stop",
    "random_seed": "seed",
    "randomSeed": "seed",
    "timeout_ms": "timeout",
    "timeoutMs": "timeout",
    "request_timeout": "timeout",
    "max_retries": "retries",
    "maxRetries": "retries",
    "num_retries": "retries",
    "response_format": "format",
    "responseFormat": "format",
    "response_mime_type": "format",
    "responseMimeType": "format",
}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# folded. They name the model, the messages, the system prompt, the destination, its headers or its TLS
_REDIRECTING: Final = _words(
    "model modelid modelname engine deployment deploymentid azuredeployment "
    "messages message prompt prompts input inputs contents chathistory "
    "instructions systemprompt systeminstruction systeminstructions systemmessage preamble "
    "baseurl apibase apiurl url uri endpoint apiendpoint azureendpoint host hostname port server scheme "
    "apihost basepath path apiversion apitype "
    "header headers extraheaders defaultheaders customheaders extrabody extraquery defaultquery "
    "organization organisation organizationid project projectid "
    "proxy proxies httpproxy httpsproxy verify sslverify verifyssl insecure cert certs sslcontext tls ssl "
    "httpclient asyncclient httpasyncclient transport mounts followredirects trustenv "
    "customllmprovider llmprovider"
)

# real parameters of providers that stand one slip away from a well-known name
_NO_SLIPS: Final = frozenset({"min_k", "min_p", "min_tokens", "top_a", "top_n"})


def fold(name: str) -> str:
    """`name` in one spelling: apiKey, api-key and API_KEY are the same."""
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def branch(name: str) -> tuple[str, ...]:
    """The keys that a dotted name leads through; the name itself where a part would be empty."""
    if "." not in name:
        return (name,)
    parts = tuple(name.split("."))
    return parts if all(parts) else (name,)


def is_redirecting(name: str) -> bool:
    """Whether the name would change where a request goes, or what it asks, and so is never sent."""
    return fold(name.lstrip(".").partition(".")[0]) in _REDIRECTING


@lru_cache(maxsize=512)
def is_secret(name: str) -> bool:
    """Whether the name says that its value is a credential."""
    from onym.uri._redact_names import is_secret_name  # not needed where every name is well-known

    return is_secret_name(name)


def shown(name: str) -> str:
    """`name` as messages may show it: printable, short, and not itself a key."""
    from onym.uri.redact import redact  # needed only where something is wrong

    text = redact(name)
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return text if len(text) <= 64 else f"{text[:63]}…"


def closest(name: str) -> str | None:
    """The well-known parameter that `name` misses by a slip or by its case, or None."""
    if name in _NO_SLIPS:
        return None
    folded = fold(name)
    for known, meant in (*((known, known) for known in WELL_KNOWN), *PROVIDER_NAMES.items()):
        target = fold(known)
        allowed = 0 if len(target) < 4 else 1 if len(target) < 7 else 2
        if abs(len(target) - len(folded)) <= allowed and _slips(folded, target) <= allowed:
            return meant
    return None


def _slips(a: str, b: str) -> int:
    """Letters to insert, drop, change or swap with their neighbour to make `b` of `a`."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        last, before, row = before, row, [i + 1]
        for j, y in enumerate(b):
            cost = min(before[j + 1] + 1, row[j] + 1, before[j] + (x != y))
            if i and j and x == b[j - 1] and a[i - 1] == y:
                cost = min(cost, last[j - 1] + 1)
            row.append(cost)
    return row[-1]
