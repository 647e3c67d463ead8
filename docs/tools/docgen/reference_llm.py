"""docs/reference/parameters.md and providers.md, from the tables of onym.llm and onym.uri."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from docgen.reference_matrix import matrix_part
from docgen.text import GENERATED, cell, code, prose, table
from onym.llm import dialects, models, parameters
from onym.llm.dialects import DIALECTS
from onym.llm.models import Profile
from onym.llm.providers import Provider, ProviderTable
from onym.uri.parameters import _REDIRECTING, PROVIDER_NAMES, WELL_KNOWN, Limits

__all__ = ["PARAMETERS", "Parameter", "parameters_page", "providers_page"]


class Parameter(NamedTuple):
    """One well-known parameter, in words. `low` and `high` are held by tests/docs/test_generated.py."""

    type: str
    low: float | None
    high: float | None
    meaning: str


PARAMETERS: Mapping[str, Parameter] = {
    "temp": Parameter("number", 0, 2, "sampling temperature"),
    "max_tokens": Parameter("whole number", 1, None, "most tokens in the answer"),
    "top_p": Parameter("number", 0, 1, "nucleus sampling threshold"),
    "top_k": Parameter("whole number", 0, None, "sample only from the k most likely tokens"),
    "stop": Parameter(
        "text, repeatable", None, None, "stop sequences, separated by commas; `%2C` is a comma in the text"
    ),
    "seed": Parameter("whole number", None, None, "seed for reproducible sampling, if the provider has one"),
    "stream": Parameter(
        "boolean", None, None, "`onym chat` and `onym explain` stream; in Python, call `stream`"
    ),
    "timeout": Parameter(
        "whole number",
        1,
        2**31 - 1,
        "milliseconds for the whole call, retries included; "
        f"default {parameters.PARAMETERS['timeout'].default}",
    ),
    "retries": Parameter(
        "whole number",
        0,
        100,
        f"attempts after the first; default {parameters.PARAMETERS['retries'].default}",
    ),
    "cache": Parameter(
        "boolean",
        None,
        None,
        "Onym stores and reuses answers, and switches the provider's prompt cache on if it has a switch",
    ),
    "format": Parameter("text", None, None, "`text`, `json` or `json_schema`"),
    "system": Parameter(
        "text", None, None, "system prompt; the untrusted policy rejects it without a filter"
    ),
}

_LIMITS = {
    "uri": "bytes of the whole URI",
    "value": "bytes of one decoded value",
    "system": "bytes of `system`",
    "json": "bytes of one JSON value",
    "depth": "levels of JSON or of dot-notation",
    "parameters": "parameters, and stop sequences",
    "number": "characters of one number",
}


_SENT = tuple(name for name in WELL_KNOWN if name not in ("timeout", "retries"))
_WIRE = (
    "This table has the names in each API format. Providers that use other names are in "
    "[Parameters by provider](#parameters-by-provider). A dot means a nested object. Onym itself acts on "
    "`timeout` and `retries` and does not send them. It sends `cache` only if the API has a switch for its "
    "prompt cache.\n"
)


def _wired(name: str) -> list[str]:
    names = dialects.get_dialect(name).parameters
    return [code(name), *(code(names.get(each)) for each in _SENT)]


def parameters_page() -> str:
    """The page of parameters."""
    limits = Limits()
    return "\n".join(
        [
            GENERATED,
            "# Parameters\n",
            "## The twelve standard parameters\n",
            (
                "Names are case-sensitive (draft 4.4). In Python they are attributes of `LLMURI` and "
                "keyword arguments of `chat`. Only `stop` may be given twice.\n"
            ),
            table(["name", "type", "range", "meaning"], [_known(name) for name in WELL_KNOWN]),
            (
                "Numbers: an optional sign, ASCII digits, an optional fraction; no exponent. Booleans: "
                "`true` or `false`, any case.\n"
            ),
            "### Names in each API format\n",
            _WIRE,
            table(["API format", *map(code, _SENT)], [_wired(name) for name in sorted(DIALECTS)]),
            "## Other parameters\n",
            (
                "Onym adds any other parameter to the request body under its own name. It converts `true`, "
                "`false`, decimal numbers, JSON objects and JSON arrays; every other value is a string. A "
                "JSON string (`%22123%22`) forces a string. A dot creates a nested object: "
                '`web_search.max_uses=3` is `{"web_search": {"max_uses": 3}}`.\n'
            ),
            (
                "`auth` names the place of a key (`env:NAME`, `file:PATH`, `keyring:SERVICE/USER`, "
                "`aws:PROFILE`, `google:PATH`). Onym never sends it.\n"
            ),
            (
                "If a provider's entry declares them, `api` chooses an API format, and `project`, "
                "`location`, `account` or `api-version` complete the URL: see "
                "[Reaching a provider](../how-to/providers.md).\n"
            ),
            "### Providers' own names for standard parameters\n",
            (
                "Onym passes these names through unchanged, and `check` suggests the standard name. If a URI "
                "has both names, Onym raises an error.\n"
            ),
            table(
                ["name", "standard name"],
                [[code(name), code(known)] for name, known in PROVIDER_NAMES.items()],
            ),
            "### Names that are never sent\n",
            (
                "They would redirect or replace the request. They are not an error; `check` lists them and a "
                "call warns. Case, `-` and `_` do not matter.\n"
            ),
            ", ".join(code(name) for name in sorted(_REDIRECTING)) + "\n",
            "## Limits\n",
            "`Limits(...)` changes them: `onym.parse(text, limits=onym.Limits(uri=16384))`.\n",
            table(
                ["limit", "default", "of what"],
                [[code(name), str(getattr(limits, name)), words] for name, words in _LIMITS.items()],
            ),
            matrix_part(),
        ]
    )


def _known(name: str) -> list[str]:
    kind, low, high, meaning = PARAMETERS[name]
    return [code(name), kind, _range(low, high), meaning]


def _range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return "-"
    if high is None:
        return f"at least {low:g}"
    return f"{low or 0:g} to {high:,}"


_PROVIDERS = (
    "All providers that Onym knows. It treats any other host as an OpenAI-compatible server with its API "
    "below `/v1`; `?api=NAME` chooses another API format. An alias stands for the first host. Onym reads a "
    "key variable only for the hosts and the port of its provider. The "
    "[matrix](parameters.md#parameters-by-provider) shows each provider's name for each parameter, and "
    "[Reaching a provider](../how-to/providers.md) explains the large clouds.\n"
)
_FAMILIES = (
    "These families of models do not support some parameters, at any provider. Such a parameter is an error "
    'before anything is sent, unless you pass `on_unsupported="drop"`.\n'
)
#: more hosts than this are told in the row's own section alone
_FEW = 4


def providers_page() -> str:
    """The page of providers and of what model families can take."""
    rows = list(ProviderTable.builtin())
    return "\n".join(
        [
            GENERATED,
            "# Providers\n",
            _PROVIDERS,
            table(["name", "alias", "host", "API format", "key variables"], [_short(row) for row in rows]),
            "## Each provider\n",
            *(line for row in rows for line in _long(row)),
            "## Model families\n",
            _FAMILIES,
            *(line for each in models.load_profiles() for line in _family(each)),
        ]
    )


def _short(row: Provider) -> list[str]:
    words = ", ".join(map(code, (row.name, *row.aliases))) if row.host else "-"
    many = len(row.hosts) > _FEW
    shown = (*(row.hosts[:1] if many else row.hosts), *row.host_suffixes)
    hosts = ", ".join(map(code, shown)) or "any other"
    named = f"[{row.name}](#{row.name})"
    return [named, words, hosts, code(row.dialect), ", ".join(map(code, row.key_variables)) or "-"]


def _long(row: Provider) -> Iterator[str]:
    yield f"### {row.title} {{: #{row.name} }}\n"
    yield f"- base path: {code(row.base_path)}, port {row.default_port}"
    yield from _place(row)
    yield from _keys(row)
    can = {
        state: [name for name, value in row.capabilities.items() if value == state] for state in ("yes", "no")
    }
    for state, names in can.items():
        if names:
            yield f"- {'has' if state == 'yes' else 'has no'}: {', '.join(names)}"
    renamed = {name: wire for name, wire in row.params.items() if wire is not None}
    if renamed:
        yield "- own names: " + ", ".join(f"{code(a)} as {code(b)}" for a, b in renamed.items())
    missing = [name for name, wire in row.params.items() if wire is None]
    if missing:
        yield f"- does not support: {', '.join(map(code, missing))}"
    if row.ranges:
        yield "- ranges: " + ", ".join(f"{code(name)} {_open(*ends)}" for name, ends in row.ranges.items())
    if row.stop_max:
        yield f"- stop sequences: at most {row.stop_max}"
    for prefix, header in row.label_headers:
        yield f"- app label{f' that begins with {code(prefix)}' if prefix else ''}: header {code(header)}"
    yield f"- [its documentation]({row.docs}); facts from: {cell(row.source)}; checked {row.checked}\n"


def _place(row: Provider) -> Iterator[str]:
    """Where requests go: wire formats, parts of paths, hosts of single operations."""
    if len(row.hosts) > _FEW:
        yield f"- hosts: {', '.join(map(code, row.hosts))}"
    for name, api in row.apis.items():
        path = row.base_path if api.base_path is None else api.base_path
        asked = f"; also by {code(f'?{api.when}=…')}" if api.when else ""
        yield f"- {code(f'?api={name}')}: {code(api.dialect)}, base path {code(path)}{asked}"
    for name, value in row.path_values.items():
        ways = [code(f"?{value.parameter}=…")]
        ways += ["the host"] if value.host else []
        ways += ["the app label"] if value.label else []
        ways += [code(variable) for variable in value.variables]
        ways += [f"else {code(value.default)}"] if value.default else []
        yield f"- {code(f'{{{name}}}')} of the path: {', '.join(ways)}"
    for operation, path in row.routes.items():
        yield f"- path of {code(operation)}: {code(path)}"
    for operation, label in row.first_labels.items():
        yield f"- {code(operation)} is served by {code(f'{label}.…')}"


def _keys(row: Provider) -> Iterator[str]:
    """How a key gets there if that is not `Authorization: Bearer`."""
    if (row.key_header, row.key_prefix) != ("Authorization", "Bearer "):
        yield f"- key: header {code(row.key_header)}"
    for start, header, prefix in row.key_forms:
        source = start.removeprefix("env:")
        which = f"from {code(source)}" if source != start else f"that begins with {code(start)}"
        yield f"- a key {which}: {code(f'{header}: {prefix}…')}"
    if row.endpoint_variables:
        yield (
            f"- the key variables also count for the host in {', '.join(map(code, row.endpoint_variables))}"
        )
    if row.chain:
        yield f"- without a key: the credentials that {code(f'auth={row.chain}:…')} finds"
    if row.signing:
        yield f"- a pair of keys signs each request ({row.signing})"


def _open(low: float | None, high: float | None) -> str:
    return f"{'…' if low is None else f'{low:g}'} to {'…' if high is None else f'{high:g}'}"


def _family(each: Profile) -> Iterator[str]:
    yield f"### {cell(each.family)}\n"
    yield f"- models: {', '.join(map(code, each.matches))}" + (
        f" at {', '.join(each.providers)}" if each.providers else ""
    )
    for title, facts in (
        ("refuses", each.refuses),
        ("refuses while it reasons", each.refuses_reasoning),
        ("takes without effect", each.ignores),
    ):
        for name, reason in facts.items():
            yield f"- {title} {code(name)}: {prose(reason)}"
    for name, values in each.refuses_values.items():
        for value, reason in values.items():
            yield f"- refuses {code(f'{name}={value}')}: {prose(reason)}"
    for title, choices in (
        ("refuses", each.refuses_choice),
        ("refuses while it reasons", each.refuses_choice_reasoning),
    ):
        for choice, reason in choices.items():
            kind = "of a named tool" if choice == "named" else code(choice)
            yield f"- {title} `tool_choice` {kind}: {prose(reason)}"
    for name, wire in each.params.items():
        yield f"- {code(name)}: " + (f"as {code(wire)}" if wire else "does not exist")
    yield f"- facts from: {cell(each.source)}; checked {each.checked}\n"
