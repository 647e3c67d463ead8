"""The second half of docs/reference/parameters.md: providers by parameters, from what the planner does."""

from __future__ import annotations

from collections.abc import Iterator

from docgen.matrix import Cell, Line, differences, families, lines, silent_rows, table_rows
from docgen.text import cell, code, table
from onym.llm.models import Profile
from onym.llm.providers import Provider
from onym.uri.parameters import WELL_KNOWN

__all__ = ["matrix_part", "shown"]

_LEGEND = """\
Each cell says what becomes of the parameter in a call to that provider, for a model of no family below:

- a name is where it is in the request; dots nest (`options.top_k` is `{"options": {"top_k": 5}}`), and what
  begins with a colon or ends in `(path)` is in the path
- a range is the provider's own; a value outside it is refused before anything is sent
- **client**: Onym acts on it, and does not send it; with a name, it switches something on at the provider too
- **refused**: an `UnsupportedError` before anything is sent; `on_unsupported="drop"` or `"warn"` sends the
  call without it

A model of a family can take less, or take it elsewhere: see [Families of models](#families-of-models).
"""
_INTRO = (
    "What the twelve standard parameters become at each provider. [Providers](providers.md) says where "
    "each fact comes from.\n"
)
#: assets/site.js puts a field for words before the table that follows
_FILTERED = '<div data-filter="Filter providers or parameters"></div>\n'
_APIS = (
    "Some providers have several API formats, and `?api=NAME` chooses one. Providers in the same row treat "
    "the parameters alike.\n"
)
_FAMILIES = (
    "These families of models differ from their provider's row above. The table assumes that a model that "
    "reasons by default does so. [Providers](providers.md#model-families) has the details.\n"
)
_KEYS = (
    "`?` means that no source answers the question: Onym sends the parameter, and the server decides. Onym "
    "reads the key from the variables in this order, and sends it only to the provider's own hosts.\n"
)
_SILENT = "Onym knows the hosts of these services for images, video and speech, and does not call them.\n"


def matrix_part() -> str:
    """The chapters by provider."""
    keys = ("provider", "json", "json_schema", "prompt cache", "app label", "key variables", "key header")
    return "\n".join(
        [
            "## Parameters by provider\n",
            _INTRO,
            _LEGEND,
            _FILTERED,
            table(("provider", *map(code, WELL_KNOWN)), map(_main, _default())),
            "### Other API formats\n",
            _APIS,
            table(("api", "providers", *map(code, WELL_KNOWN)), _grouped()),
            "### Families of models\n",
            _FAMILIES,
            table(("family", "at", "models", "differs"), _families()),
            "### Formats, prompt cache, label and key\n",
            _KEYS,
            table(keys, map(_rest, table_rows())),
            "### Services that Onym does not call\n",
            _SILENT,
            ", ".join(f"[{cell(row.title)}]({row.docs})" for row in silent_rows()) + "\n",
        ]
    )


def shown(each: Cell) -> str:
    """A cell as the page has it."""
    if each.fate == "refused":
        return "refused"
    parts = [] if each.wire is None else [code(each.wire)]
    if each.low is not None or each.high is not None:
        parts.append(f"{_end(each.low)} to {_end(each.high)}")
    if each.most is not None:
        parts.append(f"at most {each.most}")
    if each.formats:
        parts.append(f"({', '.join(each.formats)})")
    if each.unused:
        parts.append("(no effect)")
    if each.fate == "client":
        return f"client, {' '.join(parts)}" if parts else "client"
    return " ".join(parts)


def _end(bound: float | None) -> str:
    return "…" if bound is None else f"{bound:g}"


def _default() -> list[Line]:
    return [each for each in lines() if each.api is None]


def _main(line: Line) -> list[str]:
    return [_link(line.provider), *(shown(line.cells[name]) for name in WELL_KNOWN)]


def _grouped() -> Iterator[list[str]]:
    groups: dict[tuple[str, ...], list[Line]] = {}
    for line in lines():
        if line.api is not None:
            key = (line.api, *(shown(line.cells[name]) for name in WELL_KNOWN))
            groups.setdefault(key, []).append(line)
    for (api, *cells), members in sorted(groups.items()):
        yield [code(api), ", ".join(_link(each.provider) for each in members), *cells]


def _families() -> Iterator[list[str]]:
    found: dict[tuple[str, str, str], list[str]] = {}
    for profile, row, model in families():
        told = "; ".join(_told(profile, row, model))
        globs = ", ".join(map(code, profile.matches[:3])) + (" …" if len(profile.matches) > 3 else "")
        if told:
            found.setdefault((cell(profile.family), globs, told), []).append(_link(row))
    for (family, globs, told), at in found.items():
        yield [family, ", ".join(at), globs, told]


def _told(profile: Profile, row: Provider, model: str) -> Iterator[str]:
    for name, (mine, _) in differences(row, model).items():
        yield f"{code(name)}: {shown(mine)}"
    for name, value in profile.defaults.items():
        yield f"{code(name)}: {value:,} by default"
    for group in profile.exclusive:
        yield f"not together: {' and '.join(map(code, group))}"


def _rest(row: Provider) -> list[str]:
    cache = next(each for each in lines() if each.provider.name == row.name and each.api is None).cells[
        "cache"
    ]
    labels = [
        f"{code(prefix + '…')}: {code(header)}" if prefix else code(header)
        for prefix, header in row.label_headers
    ]
    labels += [f"{code(value.parameter)} in the path" for value in row.path_values.values() if value.label]
    forms = [f"{code(start)}: {_header(header, prefix)}" for start, header, prefix in row.key_forms]
    key = [_header(row.key_header, row.key_prefix), *forms]
    if row.signing:
        key.append(f"or signed ({row.signing})")
    return [
        _link(row),
        *(row.capabilities[name].replace("unknown", "?") for name in ("json", "json_schema")),
        code(cache.wire),
        ", ".join(labels) or "-",
        ", ".join(map(code, row.key_variables)) or "-",
        "; ".join(key),
    ]


def _header(name: str, prefix: str) -> str:
    return code(f"{name}: {prefix}…")


def _link(row: Provider) -> str:
    return f"[{row.name}](providers.md#{row.name})"
