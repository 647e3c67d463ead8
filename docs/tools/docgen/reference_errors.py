"""docs/reference/errors.md and exit-codes.md, from onym.errors and the table of exit codes."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache

from docgen.paths import ROOT
from docgen.text import GENERATED, code, prose, table
from onym import errors
from onym.cli import exit_codes

__all__ = ["codes_of", "errors_page", "exit_codes_page"]


def _classes() -> Iterator[type[errors.OnymError]]:
    """The public classes, in alphabetical order."""
    for name, found in sorted(vars(errors).items()):
        if not name.startswith("_") and inspect.isclass(found) and issubclass(found, errors.OnymError):
            yield found


# codes that a table or a variable of these files contains: the path, the codes, the class
_IN_TABLES = (
    ("src/onym/uri", r"uri\.(?!too-long)[a-z0-9-]+", "URISyntaxError"),
    ("src/onym/store/valkey.py", r"valkey\.(?!stale)[a-z-]+", "StoreError"),
    ("src/onym/sign/receipts.py", r"aiip\.provenance-[a-z]+", "ProvenanceError"),
    ("src/onym/ai/client_flows.py", r"aiip\.([a-z]+-required|sender-constraint)", "DeniedError"),
    # its codes follow "aiip."
    (
        "src/onym/ai/endpoint/idempotency.py",
        r"idempotency-(in-progress|mismatch)|approval-mismatch",
        "AIIPError",
    ),
)


#: the base of each family -> the chapter; the others are one chapter together
_FAMILIES: Mapping[type[errors.OnymError], str] = {
    errors.URIError: "URIs",
    errors.NetError: "Network",
    errors.ProviderError: "Providers",
    errors.EmbeddedError: "The embedded model",
    errors.AIIPError: "ai:// names",
    errors.RegistryError: "Registry",
}


@cache
def codes_of() -> dict[str, set[str]]:
    """Class name -> the codes that the source gives its instances, beside the class's own."""
    found: dict[str, set[str]] = {}
    files = {
        path.relative_to(ROOT).as_posix(): list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        for path in sorted((ROOT / "src" / "onym").rglob("*.py"))
    }
    makers = {name: name for name in (cls.__name__ for cls in _classes())}
    for nodes in files.values():
        makers |= dict(_find_makers(nodes, makers))
    for place, nodes in files.items():
        tables = [(pattern, cls) for folder, pattern, cls in _IN_TABLES if place.startswith(folder)]
        for node in nodes:
            if isinstance(node, ast.Call) and _name(node.func) in makers:
                for keyword in node.keywords:
                    if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                        found.setdefault(makers[_name(node.func)], set()).add(str(keyword.value.value))
            elif isinstance(node, ast.Constant):
                for pattern, cls in tables:
                    if re.fullmatch(pattern, str(node.value)):
                        dotted = str(node.value) if "." in str(node.value) else f"aiip.{node.value}"
                        found.setdefault(cls, set()).add(dotted)
    return found


def _find_makers(nodes: list[ast.AST], classes: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Functions with an argument `code` that make or raise errors of one class, and that class."""
    for node in nodes:
        if not isinstance(node, ast.FunctionDef) or node.name in classes:
            continue
        if "code" not in {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}:
            continue
        made = {_name(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)} & classes.keys()
        returned = _name(node.returns) if node.returns is not None else ""
        if returned in classes or len(made) == 1:
            yield node.name, returned if returned in classes else made.pop()


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def errors_page() -> str:
    """The page of errors."""
    out = [
        GENERATED,
        "# Error codes\n",
        (
            "Every error of Onym is one of these exceptions. Programs read its `code`, which is stable. "
            "People read `message` and `hint`, which says what to do next. No message contains a credential. "
            "`as_dict()` returns what `--json` prints. "
            "[Errors, timeouts and retries](../how-to/handle-errors.md) shows how to handle them, "
            "[Troubleshooting](../troubleshooting.md) how to fix the common ones.\n"
        ),
    ]
    families = _list_children(errors.OnymError)
    single = [family for family in families if family not in _FAMILIES]
    out += ["## All errors\n", *_describe(errors.OnymError), "## Usage, files and signatures\n"]
    for each in single:
        out += [*_describe(each), *_draw_family(each)]
    for family, title in _FAMILIES.items():
        out += [f"## {title}\n", *_draw_family(family)]
        for each in (family, *_list_descendants(family)):
            out += _describe(each)
    return "\n".join(out)


def _describe(each: type[errors.OnymError]) -> Iterator[str]:
    yield f"### {each.__name__}\n"
    yield f"{inspect.getdoc(each)}\n"
    yield from _facts(each)


def _draw_family(family: type[errors.OnymError]) -> Iterator[str]:
    if _list_children(family):
        yield "\n".join(("```text", family.__name__, *_draw_tree(family, ""), "```\n"))


def _list_descendants(parent: type[errors.OnymError]) -> Iterator[type[errors.OnymError]]:
    for child in _list_children(parent):
        yield child
        yield from _list_descendants(child)


def _draw_tree(parent: type[errors.OnymError], margin: str) -> Iterator[str]:
    children = _list_children(parent)
    for child in children:
        branch, below = ("└── ", "    ") if child is children[-1] else ("├── ", "│   ")
        yield margin + branch + child.__name__
        yield from _draw_tree(child, margin + below)


def _list_children(parent: type[errors.OnymError]) -> list[type[errors.OnymError]]:
    """The public subclasses in the order of the source; private classes between do not count."""
    found = []
    for child in parent.__subclasses__():
        found += _list_children(child) if child.__name__.startswith("_") else [child]
    return found


def _facts(each: type[errors.OnymError]) -> Iterator[str]:
    more = sorted(codes_of().get(each.__name__, set()) - {each.default_code})
    yield f"- code: {code(each.default_code)}" + (f", also {', '.join(map(code, more))}" if more else "")
    fields = ("code", "message", "hint", *each.fields)
    yield f"- attributes: {', '.join(map(code, fields))}"
    yield f"- exit code of `onym`: {each.exit_code}\n"


def exit_codes_page() -> str:
    """The page of exit codes."""
    rows = []
    for number, meaning in exit_codes.MEANINGS.items():
        ours = sorted(cls.__name__ for cls in _classes() if cls.exit_code == number)
        linked = ", ".join(f"[{name}](errors.md#{name.lower()})" for name in ours)
        rows.append([str(number), prose(meaning), linked or "-"])
    return "\n".join(
        [
            GENERATED,
            "# Exit codes\n",
            (
                "`onym` ends with one of these exit codes, and `onym help exit-codes` prints them. The "
                "numbers are stable across releases. With `--json`, an error is also "
                "[printed on standard output](cli-json.md#errors).\n"
            ),
            table(["code", "meaning", "errors"], rows),
        ]
    )
