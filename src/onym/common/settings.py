"""Typed settings from a TOML file, environment variables and arguments; the last one that sets a value wins.

The settings are the fields of a frozen dataclass or a msgspec Struct. msgspec checks the types, and `Parser`
in an annotation adds a rule of its own:

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        base_url: Annotated[str, Parser(parse_origin)]
        port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 443
        token: Secret | None = None

    settings = load_settings(Settings, path, prefix="ONYM_GATEWAY_", environ=os.environ)

Every failure is a ConfigError that names the file with the line, the variable or the argument. It never
shows the value, which may be a secret.
"""

from __future__ import annotations

import errno
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import msgspec.structs

from onym.common.files import read_file
from onym.errors import ConfigError, SecretError, URIError, UsageError

T = TypeVar("T")
#: makes an error from a message, the keys, `code=` and `hint=`
MakeError: TypeAlias = Callable[..., ConfigError]

_MAX_FILE: Final = 1024 * 1024
_FLAGS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
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
            raise self.make_error(f"is not TOML{suffix}", code="config.not-toml") from None

    @classmethod
    def load(cls, path: Path, *, limit: int = _MAX_FILE) -> SettingsFile:
        """Read the file. Raises ConfigError: `config.missing`, `.unreadable`, `.too-long`, `.not-toml`."""
        try:
            content = read_file(path, limit)
            return cls(path, content.decode("utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"{path}: the file does not exist", code="config.missing") from None
        except OSError as error:
            code = "config.too-long" if error.errno == errno.EFBIG else "config.unreadable"
            raise ConfigError(f"{path}: cannot be read: {error.strerror}", code=code) from None
        except UnicodeDecodeError as error:
            message = f"{path}: is not UTF-8 at byte {error.start}"
            raise ConfigError(message, code="config.not-toml") from None

    def make_error(
        self,
        message: str,
        *keys: str,
        code: str = "config.invalid",
        hint: str | None = None,
    ) -> ConfigError:
        """An error that names the file, the line of the key if it can be found, and the key."""
        line = self.find_line(*keys) if keys else None
        place = str(self.path) if line is None else f"{self.path}:{line}"
        name = f"{'.'.join(keys)}: " if keys else ""
        return ConfigError(f"{place}: {name}{message}", code=code, hint=hint)

    def find_line(self, *keys: str) -> int | None:
        """The line of a key, found as text because the TOML parser keeps no positions."""
        *tables, key = keys
        table = ".".join(tables)
        header = re.compile(rf"\s*\[+\s*{re.escape('.'.join(keys))}\s*[\].]")
        member = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]")
        inside = not tables
        for number, line in enumerate(self.text.splitlines(), 1):
            if header.match(line) or (inside and member.match(line)):
                return number
            if line.lstrip().startswith("["):
                inside = re.match(rf"\s*\[+\s*{re.escape(table)}\s*\]", line) is not None if table else False
        return None


def load_settings(
    kind: type[T],
    path: Path | None = None,
    *,
    prefix: str = "",
    environ: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> T:
    """Settings of type `kind`. An argument that is None sets nothing, nor does an empty variable.

    `port` is read from the variable `{prefix}PORT`, and `port` of the table `smtp` from `{prefix}SMTP_PORT`.
    Raises ConfigError, also with the codes `config.unknown-setting`, `config.bad-setting` and
    `config.missing-setting`.
    """
    file = SettingsFile.load(path) if path is not None else None
    values = {} if file is None else convert_settings(kind, file.data, file.make_error)
    _merge_values(values, _read_variables(kind, environ or {}, prefix))
    given = {name: value for name, value in (arguments or {}).items() if value is not None}
    _merge_values(values, convert_settings(kind, given, _make_value_error))
    return build_settings(kind, values, _make_value_error if file is None else file.make_error)


def convert_settings(
    kind: type[Any], data: Mapping[str, Any], make_error: MakeError, *keys: str
) -> dict[str, Any]:
    """The values of a table as the types of the fields of `kind`, nested tables as dicts.

    `make_error(message, *keys, code=, hint=)` makes the error. Raises it for an unknown key or a bad value.
    """
    hints = get_type_hints(kind, include_extras=True)
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name not in hints:
            close = get_close_matches(name, list(hints), n=1)
            hint = f"did you mean {close[0]}?" if close else f"the settings are {', '.join(hints)}"
            raise make_error("is not a setting", *keys, name, code="config.unknown-setting", hint=hint)
        values[name] = _convert_field(value, hints[name], make_error, (*keys, name))
    return values


def _convert_field(value: Any, hint: Any, make_error: MakeError, keys: Sequence[str]) -> Any:
    table, items = _find_table(hint), _find_item_table(hint)
    if table is not None and isinstance(value, Mapping):
        return convert_settings(table, value, make_error, *keys)
    if items is not None and isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        return tuple(
            build_settings(items, convert_settings(items, item, make_error, *keys), make_error, *keys)
            for item in value
        )
    try:
        return _convert_value(value, hint)
    except ValueError as error:
        raise make_error(str(error), *keys, code="config.bad-setting") from None


def build_settings(kind: type[T], values: Mapping[str, Any], make_error: MakeError, *keys: str) -> T:
    """The settings from converted values. Raises the error for a value that is missing."""
    hints = get_type_hints(kind, include_extras=True)
    built = {}
    for name, value in values.items():
        table = _find_table(hints[name])
        if table is not None and isinstance(value, dict):
            built[name] = build_settings(table, value, make_error, *keys, name)
        else:
            built[name] = value
    missing = [name for name in _list_required(kind) if name not in built]
    if missing:
        raise make_error("is missing", *keys, missing[0], code="config.missing-setting")
    return kind(**built)


def _list_required(kind: Any) -> Iterator[str]:
    if is_dataclass(kind):
        for field in fields(kind):
            if field.init and field.default is MISSING and field.default_factory is MISSING:
                yield field.name
    else:
        for struct_field in msgspec.structs.fields(kind):
            if struct_field.required:
                yield struct_field.name


def _read_variables(
    kind: type[Any], environ: Mapping[str, str], prefix: str, keys: Sequence[str] = ()
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        variable = prefix + "_".join((*keys, name)).upper()
        table = _find_table(hint)
        if table is not None:
            found = _read_variables(table, environ, prefix, (*keys, name))
            values |= {name: found} if found else {}
        elif environ.get(variable):
            try:
                values[name] = _convert_text(environ[variable], hint)
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


def _convert_text(text: str, hint: Any) -> Any:
    """The value of a variable: flags as words, numbers as digits, lists separated by commas."""
    plain = _strip_annotation(hint)
    origin = get_origin(plain)
    if _find_parser(hint) is None:
        if plain is bool and text.lower() in _FLAGS:
            return _FLAGS[text.lower()]
        if origin in (tuple, list, frozenset):
            return _convert_value([item.strip() for item in text.split(",")], hint)
    return _convert_value(text, hint, strict=False)


def _convert_value(value: Any, hint: Any, *, strict: bool = True) -> Any:
    """The value as the type; raises ValueError with what is wanted."""
    parser = _find_parser(hint)
    if parser is not None:
        return parser.parse(value)
    try:
        return msgspec.convert(value, hint, strict=strict, dec_hook=_build_value)
    except msgspec.ValidationError as error:
        text = str(error).partition(" - at ")[0]
        choices = ", ".join(map(str, get_args(_strip_annotation(hint))))
        text = _VALUE_MESSAGE.sub(f"must be one of {choices}", text)
        raise ValueError(text[:1].lower() + text[1:]) from None


def _build_value(kind: type[Any], value: Any) -> Any:
    """A value of a type that msgspec does not know, such as Path or Secret, from text."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, str):
        raise TypeError("expected text")
    try:
        return kind(value)
    except (SecretError, URIError, UsageError) as error:
        raise ValueError(error.message) from None


def _find_parser(hint: Any) -> Parser | None:
    if get_origin(hint) is Annotated:
        return next((extra for extra in hint.__metadata__ if isinstance(extra, Parser)), None)
    return None


def _strip_annotation(hint: Any) -> Any:
    """The type without Annotated and None."""
    if get_origin(hint) is Annotated:
        return _strip_annotation(get_args(hint)[0])
    options = [option for option in get_args(hint) if option is not type(None)]
    if type(None) in get_args(hint) and len(options) == 1:
        return _strip_annotation(options[0])
    return hint


def _find_item_table(hint: Any) -> type[Any] | None:
    """The dataclass or Struct of an array of tables."""
    plain = _strip_annotation(hint)
    return _find_table(get_args(plain)[0]) if get_origin(plain) in (tuple, list) else None


def _find_table(hint: Any) -> type[Any] | None:
    """The dataclass or Struct that the field contains."""
    plain = _strip_annotation(hint)
    is_table = isinstance(plain, type) and (
        hasattr(plain, "__dataclass_fields__") or issubclass(plain, msgspec.Struct)
    )
    return plain if is_table and _find_parser(hint) is None else None
