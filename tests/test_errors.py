"""The exception tree: drawn whole, coded, and safe to send anywhere."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

from onym import errors
from support import as_subtests

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "errors.md"


def classes() -> Iterator[type[errors.OnymError]]:
    for _, value in inspect.getmembers(errors, inspect.isclass):
        if issubclass(value, errors.OnymError) and not value.__name__.startswith("_"):
            yield value


def make(cls: type[errors.OnymError]) -> errors.OnymError:
    if cls is errors.PolicyError:
        return errors.PolicyError("not there", reason="loopback", endpoint="https://localhost")
    return cls("what went wrong", hint="do this")


@as_subtests("cls", list(classes()), ids=lambda c: c.__name__)
def test_every_error_has_a_stable_dotted_code(cls: type[errors.OnymError]) -> None:
    assert re.fullmatch(r"[a-z]+(\.[a-z-]+)+", make(cls).code)


def test_no_two_classes_share_a_default_code() -> None:
    codes = [cls.default_code for cls in classes()]
    assert len(codes) == len(set(codes))


def test_the_page_has_every_class_and_shows_families_under_their_parents() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert sorted(re.findall(r"^### (\w+)$", page, re.MULTILINE)) == sorted(c.__name__ for c in classes())
    parents = {"OnymError": ""}
    for tree in re.findall(r"^```text\n(\w+\n[├└].*?)```", page, re.MULTILINE | re.DOTALL):
        root = tree.partition("\n")[0]
        parents[root] = "OnymError"
        above = [root]
        for margin, name in re.findall(r"^([│ ]*)[├└]── (\w+)", tree, re.MULTILINE):
            above[len(margin) // 4 + 1 :] = [name]
            parents[name] = above[-2]
    names = {cls.__name__ for cls in classes()}
    for cls in classes():
        public = [base.__name__ for base in cls.__mro__[1:] if base.__name__ in names]
        # only a class without a family needs no picture
        assert parents.get(cls.__name__, "OnymError") == (public[0] if public else "")


@as_subtests("cls", list(classes()), ids=lambda c: c.__name__)
def test_an_error_survives_pickling_with_all_it_says(cls: type[errors.OnymError]) -> None:
    error = make(cls)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert again.as_dict() == error.as_dict()
    assert str(again) == str(error)


def test_a_uri_error_says_where_and_by_which_rule() -> None:
    error = errors.URISyntaxError(
        "a character that no host can hold",
        component="host",
        offset=6,
        clause="RFC 3986 3.2.2",
        hint="encode it",
    )
    assert str(error) == "a character that no host can hold at offset 6 [RFC 3986 3.2.2] (encode it)"
    assert error.as_dict() == {
        "code": "uri.syntax",
        "message": "a character that no host can hold",
        "hint": "encode it",
        "component": "host",
        "offset": 6,
        "clause": "RFC 3986 3.2.2",
    }


def test_an_endpoint_error_names_the_endpoint() -> None:
    error = errors.RateLimitError(
        "slow down", endpoint="https://api.example.com/v1", retry_after=2.0, status=429
    )
    assert str(error) == "slow down [https://api.example.com/v1]"
    assert error.as_dict()["retry_after"] == 2.0


def test_no_other_module_defines_an_exception() -> None:
    import ast

    home = Path(errors.__file__).parent
    bases = {c.__name__ for c in classes()} | {"Exception", "BaseException", "ValueError", "RuntimeError"}
    found = []
    for path in home.rglob("*.py"):
        if path.name == "errors.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = {b.id if isinstance(b, ast.Name) else getattr(b, "attr", "") for b in node.bases}
                if names & bases:
                    found.append(f"{path.relative_to(home)}:{node.name}")
    assert found == []


#: exit code and HTTP status as documented; a class that is not named has those of its base class
_DOCUMENTED = {
    "OnymError": (70, 500),
    "UsageError": (2, 400),
    "ConformanceError": (2, 400),
    "ConfigError": (4, 500),
    "CredentialError": (4, 500),
    "URIError": (3, 422),
    "NetError": (6, 502),
    "PolicyError": (5, 502),
    "DeadlineExceeded": (8, 504),
    "UnsupportedError": (9, 501),
    "ProviderError": (7, 502),
    "EmbeddedError": (10, 500),
    "MissingExtraError": (10, 501),
    "SignatureError": (12, 403),
    "AIIPError": (13, 502),
    "ProvenanceError": (12, 502),
    "DeniedError": (5, 403),
    "AuthorizationError": (13, 403),
    "TaskCancelled": (13, 410),
    "ApprovalRequired": (14, 403),
    "TaskRunning": (15, 502),
    "RegistryError": (11, 422),
    "RefusalError": (11, 409),
    "StaleError": (11, 412),
    "UnknownEntryError": (11, 404),
    "AccessError": (11, 403),
    "StoreError": (11, 503),
}


def test_exit_codes_and_http_statuses_are_the_documented_ones() -> None:
    for kind in classes():
        home = next(base.__name__ for base in kind.__mro__ if base.__name__ in _DOCUMENTED)
        assert (kind.exit_code, kind.http_status) == _DOCUMENTED[home], kind.__name__
