"""Typed settings from a TOML file, environment variables and arguments; the last of them wins."""

from __future__ import annotations

import errno
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from onym.common.files import read_file
from onym.errors import ConfigError, SecretError, URIError, UsageError

T = TypeVar("T")
#: makes an error from a message, the keys, `code=` and `hint=`
MakeError: TypeAlias = Callable[..., ConfigError]

_MAX_FILE: Final = 256 * 1024
_FLAGS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
#: the header of a table, or of an array of tables
_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
#: msgspec: "Expected `int` <= 730", "Expected `int | null`, got `str`"
_MISMATCH: Final = re.compile(
    r"Expected `(?P<wanted>[\w |]+)`(?:, got `(?P<got>\w+)`| (?P<sign>[<>]=?) (?P<limit>[\d.]+))"
)
_KINDS: Final = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "str": "text",
    "array": "a list", "object": "a table", "null": "nothing",
}  # fmt: skip
_VALUE_MESSAGE: Final = re.compile(r"Invalid enum value .*?(?= - at |$)")


@dataclass(frozen=True, slots=True)
class Parser:
    """Reads one setting from its TOML value or its text. `parse` raises ValueError with what is wanted."""

    parse: Callable[[Any], object]


class SettingsFile:
    """A TOML file, and the lines of its keys for error messages."""

    def __init__(self, path: Path, text: str = "") -> None:
        self.path = path
        self.text = text
        self.data: dict[str, Any] = {}
        try:
            self.data = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            # the parser's message may quote the text
            place = re.search(r"line (\d+), column (\d+)", str(error))
            suffix = f" at line {place[1]}, column {place[2]}" if place else ""
            hint = 'Write name = "value", and close every quotation mark and bracket on its line.'
            raise self.make_error(f"is not valid TOML{suffix}", code="config.syntax", hint=hint) from None

    @classmethod
    def load(cls, path: Path, *, limit: int = _MAX_FILE) -> SettingsFile:
        """Read the file.

        Raises ConfigError `config.missing`, `config.unreadable`, `config.too-long`, `config.syntax`.
        """
        try:
            return cls(path, read_file(path, limit).decode("utf-8-sig"))
        except FileNotFoundError:
            raise ConfigError(f"{path}: the file does not exist", code="config.missing") from None
        except OSError as error:
            code = "config.too-long" if error.errno == errno.EFBIG else "config.unreadable"
            raise ConfigError(f"{path}: cannot be read: {error.strerror}", code=code) from None
        except UnicodeDecodeError as error:
            message = f"{path}: is not UTF-8 at byte {error.start}"
            raise ConfigError(message, code="config.syntax") from None

    def make_error(
        self, message: str, *keys: str, code: str = "config.invalid", hint: str | None = None
    ) -> ConfigError:
        """Return an error that names the file, the line of the key if it can be found, and the key."""
        line = self.find_line(*keys) if keys else None
        if line is None and len(keys) > 1:
            line = self.find_line(*keys[:-1])  # the table of a key that is missing
        place = str(self.path) if line is None else f"{self.path}:{line}"
        name = f"{'.'.join(keys)}: " if keys else ""
        return ConfigError(f"{place}: {name}{message}", code=code, hint=hint)

    def find_line(self, *keys: str) -> int | None:
        """Return the line of a key, found as text because the TOML parser keeps no positions."""
        names = [key.partition("[")[0] for key in keys]
        wanted = [int(key.partition("[")[2].rstrip("]") or 0) for key in keys]
        *tables, key = names
        member = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]")
        inside = not tables
        counts: dict[tuple[str, ...], int] = {}
        for number, line in enumerate(self.text.splitlines(), 1):
            header = _HEADER.match(line)
            if header is None:
                if inside and member.match(line):
                    return number
                continue
            path = tuple(part.strip(" \t\"'") for part in header[2].split("."))
            if header[1] == "[[":
                counts[path] = counts.get(path, -1) + 1
                # the tables inside it are counted anew
                counts = {
                    name: at for name, at in counts.items() if name[: len(path)] != path or name == path
                }
            here = [counts.get(path[:length], 0) for length in range(1, len(path) + 1)]
            if path[: len(names)] == tuple(names) and here[: len(names)] == wanted:
                return number
            inside = bool(tables) and path == tuple(tables) and here == wanted[:-1]
        return None


def load_settings(
    kind: type[T],
    path: str | Path | None = None,
    *,
    prefix: str = "",
    environ: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> T:
    """Return the settings of type `kind`. An argument that is None sets nothing, nor does an empty variable.

    `port` is read from the variable `{prefix}PORT`, and `port` of the table `smtp` from `{prefix}SMTP_PORT`.
    Without `path`, the variable `{prefix}CONFIG` names the file. Raises ConfigError `config.unreadable`,
    `config.too-long`, `config.syntax`, `config.unknown-setting`, `config.bad-setting` and
    `config.missing-setting`.

    The settings are the fields of a frozen dataclass. msgspec checks the types, and `Parser` in an annotation
    adds another rule:

        @dataclass(frozen=True, kw_only=True)
        class Settings:
            base_url: Annotated[str, Parser(parse_origin)]
            port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 443
            token: Secret | None = None

        settings = load_settings(Settings, path, prefix="ONYM_GATEWAY_", environ=os.environ)

    Text becomes the type of its field: flags are words, numbers are digits, and commas separate the items of
    a list. Every failure is a ConfigError that names the file with the line, the variable or the argument. It
    never shows the value, which may be a secret.
    """
    environ = environ or {}
    named = path or environ.get(f"{prefix}CONFIG")
    file = SettingsFile.load(Path(named)) if named else None
    values = {}
    if file is not None:
        values = _convert_table(kind, file.data, explain_misplaced_keys(kind, file.data, file.make_error))
    _merge_values(values, _read_variables(kind, environ, prefix))
    given = {name: value for name, value in (arguments or {}).items() if value is not None}
    _merge_values(values, _convert_table(kind, given, _make_value_error))
    return _build_settings(kind, values, _make_value_error if file is None else file.make_error)


def convert_settings(kind: type[T], data: Mapping[str, Any], make_error: MakeError) -> T:
    """Return the values of a file, without variables, as the type `kind`. Raises as `load_settings`."""
    explained = explain_misplaced_keys(kind, data, make_error)
    return _build_settings(kind, _convert_table(kind, data, explained), make_error)


def explain_misplaced_keys(kind: type[Any], data: Mapping[str, Any], make_error: MakeError) -> MakeError:
    """Return `make_error` with another text for unknown keys of a table that are keys of the whole file.

    TOML puts a key that stands after the header of a table into that table.
    """
    of_file = _list_fields(kind)
    first = next((_format_header(name, value) for name, value in data.items() if _is_table(value)), "")

    def make_explained_error(
        message: str, *keys: str, code: str = "config.invalid", hint: str | None = None
    ) -> ConfigError:
        if len(keys) > 1 and keys[-1] in of_file and code == "config.unknown-setting" and first:
            message = "is a key of the whole file, but TOML puts it into the table above it"
            hint = f"Move the line above {first}, the first table of the file."
        return make_error(message, *keys, code=code, hint=hint)

    return make_explained_error


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
    )


def _format_header(name: str, value: object) -> str:
    return f"[{name}]" if isinstance(value, Mapping) else f"[[{name}]]"


def convert_value(value: Any, hint: Any) -> Any:
    """Return the value, from TOML or from text, as the type `hint`. Raises ValueError with what is wanted."""
    parser = _find_parser(hint)
    if parser is not None:
        return parser.parse(value)
    plain = _strip_annotation(hint)
    if get_origin(plain) is tuple:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise ValueError("must be a list")
        item_hint = get_args(plain)[0]
        return tuple(
            convert_value(item.strip() if isinstance(item, str) else item, item_hint) for item in items
        )
    if plain is bool and isinstance(value, str):
        value = _FLAGS.get(value.lower(), value)
    try:
        return msgspec.convert(value, hint, strict=not isinstance(value, str), dec_hook=_build_value)
    except msgspec.ValidationError as error:
        text = str(error).partition(" - at ")[0]
        choices = ", ".join(map(str, get_args(plain)))
        text = _VALUE_MESSAGE.sub(f"must be one of {choices}", text)
        text = _describe_mismatch(text)
        raise ValueError(text[:1].lower() + text[1:]) from None


def _describe_mismatch(text: str) -> str:
    """Return a message of msgspec about a type or a range in plain words; any other message as it is."""
    found = _MISMATCH.fullmatch(text)
    if found is None:
        return text
    names = [name for name in found["wanted"].split(" | ") if name != "null"]
    wanted = " or ".join(_KINDS.get(name, name) for name in names)
    bound = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}.get(found["sign"] or "")
    if bound is not None:
        return f"must be {wanted}, {bound} {found['limit']}"
    return f"must be {wanted}, not {_KINDS.get(found['got'] or '', found['got'])}" if found["got"] else text


def _convert_table(
    kind: type[Any], data: Mapping[str, Any], make_error: MakeError, *keys: str
) -> dict[str, Any]:
    """Return the values as the types of the fields of `kind`, nested tables as dicts."""
    hints = _list_fields(kind)
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name not in hints:
            close = get_close_matches(name, list(hints), n=1)
            hint = f"Did you mean {close[0]}?" if close else f"The settings are {', '.join(hints)}."
            raise make_error("is not a setting", *keys, name, code="config.unknown-setting", hint=hint)
        values[name] = _convert_field(value, hints[name], make_error, (*keys, name))
    return values


def _convert_field(value: Any, hint: Any, make_error: MakeError, keys: Sequence[str]) -> Any:
    table, row = _find_table(hint), _find_row(hint)
    if table is not None and isinstance(value, Mapping):
        return _convert_table(table, value, make_error, *keys)
    if row is not None and isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        return tuple(
            _build_settings(row, _convert_table(row, item, make_error, *place), make_error, *place)
            for item, place in ((item, (*keys[:-1], f"{keys[-1]}[{at}]")) for at, item in enumerate(value))
        )
    try:
        return convert_value(value, hint)
    except ValueError as error:
        raise make_error(str(error), *keys, code="config.bad-setting") from None


def _build_settings(kind: type[T], values: Mapping[str, Any], make_error: MakeError, *keys: str) -> T:
    built = dict(values)
    for name, hint in _list_fields(kind).items():
        table = _find_table(hint)
        if table is not None and values.get(name) == {} and type(None) in get_args(hint):
            built[name] = None  # an empty table sets nothing
        elif table is not None and isinstance(values.get(name), dict):
            built[name] = _build_settings(table, values[name], make_error, *keys, name)
    for field in fields(kind):  # type: ignore[arg-type]
        if field.init and field.name not in built and field.default is field.default_factory is MISSING:
            raise make_error(
                "is missing", *keys, field.name, code="config.missing-setting",
                hint=_explain_missing(kind, field.name, keys),
            )  # fmt: skip
    return kind(**built)


def _explain_missing(kind: type[Any], name: str, keys: Sequence[str]) -> str:
    """Return what to write into a file for a setting that is missing."""
    hint = _list_fields(kind)[name]
    path = ".".join(key.partition("[")[0] for key in (*keys, name))
    if _find_row(hint) is not None:
        return f"Add a table [[{path}]]."
    return f"Add the table [{path}]." if _find_table(hint) is not None else f"Add {name} = ... here."


def _read_variables(
    kind: type[Any], environ: Mapping[str, str], prefix: str, keys: Sequence[str] = ()
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, hint in _list_fields(kind).items():
        variable = prefix + "_".join((*keys, name)).upper()
        table = _find_table(hint)
        if table is not None:
            members = _read_variables(table, environ, prefix, (*keys, name))
            values |= {name: members} if members else {}
        elif environ.get(variable) and _find_row(hint) is None:
            try:
                values[name] = convert_value(environ[variable], hint)
            except ValueError as error:
                message = f"the variable {variable}: {error}"
                raise ConfigError(message, code="config.bad-setting") from None
    return values


def _merge_values(values: dict[str, Any], later: Mapping[str, Any]) -> None:
    for name, value in later.items():
        if isinstance(value, dict) and isinstance(values.get(name), dict):
            _merge_values(values[name], value)
        else:
            values[name] = value


def _make_value_error(message: str, *keys: str, code: str, hint: str | None = None) -> ConfigError:
    return ConfigError(f"{'.'.join(keys)}: {message}", code=code, hint=hint)


def _build_value(kind: type[Any], value: Any) -> Any:
    """Return a value of a type that msgspec does not know, such as Path or Secret, from text."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, str):
        raise TypeError("expected text")
    try:
        return kind(value)
    except (SecretError, URIError, UsageError) as error:
        raise ValueError(error.message) from None


def _list_fields(kind: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind) if field.init}


def _find_parser(hint: Any) -> Parser | None:
    if get_origin(hint) is Annotated:
        return next((extra for extra in hint.__metadata__ if isinstance(extra, Parser)), None)
    option = _find_only_option(hint)
    return None if option is None else _find_parser(option)


def _strip_annotation(hint: Any) -> Any:
    """Return the type without Annotated and None."""
    inner = get_args(hint)[0] if get_origin(hint) is Annotated else _find_only_option(hint)
    return hint if inner is None else _strip_annotation(inner)


def _find_only_option(hint: Any) -> Any:
    """Return T for `T | None`, and None for any other type."""
    options = [option for option in get_args(hint) if option is not type(None)]
    return options[0] if len(options) == 1 < len(get_args(hint)) else None


def _find_row(hint: Any) -> type[Any] | None:
    """Return the dataclass of an array of tables."""
    plain = _strip_annotation(hint)
    return _find_table(get_args(plain)[0]) if get_origin(plain) is tuple else None


def _find_table(hint: Any) -> type[Any] | None:
    """Return the dataclass that the field contains."""
    plain = _strip_annotation(hint)
    return plain if hasattr(plain, "__dataclass_fields__") and isinstance(plain, type) else None
