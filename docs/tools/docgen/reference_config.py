"""docs/reference/config.md: the configuration file, from the values that it is read into."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

from docgen.paths import EXAMPLES
from docgen.text import GENERATED, cell, code, paragraphs, table
from onym.llm.providers import Provider
from onym.net.policy import PRESETS, Policy
from onym.uri.parameters import WELL_KNOWN

__all__ = ["EXAMPLE", "config_page"]

EXAMPLE = EXAMPLES / "config.toml"

_PAGE = """
# Configuration

The file is `config.toml` in the user's configuration folder for `onym`: `~/.config/onym` on Linux,
`~/Library/Application Support/onym` on macOS, `%LOCALAPPDATA%\\onym` on Windows. `ONYM_CONFIG` names another.
You do not need one. `onym config` shows and checks it.

```toml title="config.toml"
{example}```

Unknown keys are errors. The message gives the line number.

## endpoints {{: #endpoints }}

An endpoint is a name for a URI. `onym chat fast` and `onym.connect("fast")` use it. Do not write keys here:
use `auth=` or the provider's variable.

## profiles {{: #profiles }}

A profile has values that a URI selects by its fragment (`#code-review`). Values in the URI take
precedence. You can set {known} and `schema`, a JSON Schema. Onym passes any other name through.

## policy {{: #policy }}

These rules apply if the program does not pass a policy. `preset` is one of {presets}; the other names change
it: [What the presets allow](../explanation/decisions.md#where-a-uri-may-lead).

{policy}
{policy_words}
## network {{: #network }}

These settings apply to every connection: [Use a proxy or a private CA](../how-to/networks.md). `proxy` is a
URL, `"environment"` or `"none"`, `no_proxy` a list of hosts and networks that are reached without it.
`ca_files` are trusted besides the system's authorities; `client_cert` and `client_key` are the client's own
(PEM). With `tls_loopback = true`, servers on this computer have TLS. Options and `ONYM_PROXY` take
precedence.

## providers {{: #providers }}

Add a provider of your own to [the built-in ones](providers.md). Only `hosts` is required.

{row}
{row_words}
"""


def config_page() -> str:
    """The page."""
    return GENERATED + _PAGE.format(
        example=EXAMPLE.read_text(encoding="utf-8"),
        known=", ".join(map(code, WELL_KNOWN)),
        presets=", ".join(map(code, PRESETS)),
        policy=table(["name", *PRESETS], _policy_rows()),
        policy_words=_after_first(Policy),
        row=table(["name", "type", "default"], _row_rows()),
        row_words=_after_first(Provider),
    )


def _after_first(value: object) -> str:
    """A docstring but for its first paragraph, and for what it raises."""
    doc = (inspect.getdoc(value) or "").split("\n\n", 1)[1]
    return paragraphs(doc.partition("\n\nRaises ")[0])


def _policy_rows() -> Iterator[list[str]]:
    presets = [Policy.preset(name) for name in PRESETS]
    for each in dataclasses.fields(Policy):
        if not each.name.startswith("_") and each.name != "name":
            yield [code(each.name), *(code(_toml(getattr(preset, each.name))) for preset in presets)]


#: what the reader of the file fills in
_FILLED = {
    "title": "the row's name",
    "needs_key": "whether it has key variables",
    "docs": "-",
    "source": "the file",
    "checked": "the file's date",
}


def _row_rows() -> Iterator[list[str]]:
    for each in dataclasses.fields(Provider):
        if each.name == "name":
            continue
        default = "-" if each.default in (None, dataclasses.MISSING) else code(_toml(each.default))
        yield [code(each.name), cell(str(each.type)), _FILLED.get(each.name, default)]


def _toml(value: Any) -> str:
    if value is None:
        return "any"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, frozenset | tuple):
        return f"[{', '.join(_toml(each) for each in sorted(value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
