"""Typed settings from a file, environment variables and arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from onym.common.settings import Parser, SettingsFile, load_settings
from onym.errors import ConfigError
from onym.uri.secret import Secret


def parse_lower(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value.lower()


@dataclass(frozen=True, kw_only=True)
class Mail:
    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 25
    password: Secret | None = None


@dataclass(frozen=True, kw_only=True)
class Issuer:
    name: str
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Settings:
    name: Annotated[str, Parser(parse_lower)]
    folder: Path = Path("data")
    level: Literal["low", "high"] = "low"
    is_open: bool = False
    hosts: tuple[str, ...] = ()
    mail: Mail | None = None
    issuers: tuple[Issuer, ...] = ()
    extra: dict[str, int] = field(default_factory=dict)


FILE = """
name = "ONE"
folder = "/srv"
hosts = ["a", "b"]
extra = { x = 1 }

[mail]
host = "mail.example"
password = "hunter2"

[[issuers]]
name = "first"
scopes = ["openid"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text(FILE)
    return path


def error_of(path: Path | None, text: str | None = None, **sources: Any) -> ConfigError:
    if path is not None and text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(Settings, path, prefix="X_", **sources)
    return caught.value


def test_a_file_alone(path: Path) -> None:
    settings = load_settings(Settings, path)
    assert (settings.name, settings.folder, settings.hosts) == ("one", Path("/srv"), ("a", "b"))
    assert settings.mail == Mail(host="mail.example", password=Secret("hunter2"))
    assert settings.issuers == (Issuer(name="first", scopes=("openid",)),)
    assert settings.extra == {"x": 1}


def test_variables_take_precedence_over_the_file_and_arguments_over_both(path: Path) -> None:
    environ = {
        "X_NAME": "TWO",
        "X_LEVEL": "high",
        "X_IS_OPEN": "yes",
        "X_HOSTS": "c, d",
        "X_MAIL_PORT": "587",
        "X_FOLDER": "",
    }
    arguments = {"name": "three", "folder": Path("here"), "level": None}
    settings = load_settings(Settings, path, prefix="X_", environ=environ, arguments=arguments)
    assert (settings.name, settings.level, settings.is_open) == ("three", "high", True)
    assert (settings.hosts, settings.folder) == (("c", "d"), Path("here"))
    assert settings.mail is not None
    assert (settings.mail.host, settings.mail.port) == ("mail.example", 587)


def test_defaults() -> None:
    assert load_settings(Settings, arguments={"name": "x"}) == Settings(name="x")


@pytest.mark.parametrize(
    ("text", "code", "parts"),
    [
        ("name = 1", "config.bad-setting", (":1: name:",)),
        ("\nnames = 'x'", "config.unknown-setting", (":2: names:", "name?")),
        ("name = 'x'\nzzz = 1", "config.unknown-setting", (":2: zzz:", "name, folder")),
        ("name = 'x'\nlevel = 'secret'", "config.bad-setting", (":2: level:", "low, high")),
        ("name = 'x'\nis_open = 'perhaps'", "config.bad-setting", (":2: is_open:", "true or false")),
        ("name = 'x'\nfolder = 1", "config.bad-setting", (":2: folder:", "text")),
        ("name = 'x'\n[mail]\nhost = 'h'\nport = 0", "config.bad-setting", (":4: mail.port:", "1")),
        ("name = 'x'\n[mail]\nhost = 'h'\nport = 70000", "config.bad-setting", ("number, at most 65535",)),
        ("name = 'x'\n[mail]\nport = 5", "config.missing-setting", (":2: mail.host:", "host = ")),
        ("name = 'x'\nmail = 5", "config.bad-setting", (":2: mail:",)),
        ("name = 'x'\n[[issuers]]\nnam = 5", "config.unknown-setting", (":3: issuers[0].nam:",)),
        ("name = 'x'\n[[issuers]]\nscopes = []", "config.missing-setting", (":2: issuers[0].name:",)),
        ("level = 'low'", "config.missing-setting", ("name:",)),
        ("name = x y", "config.syntax", ("line 1, column 8",)),
    ],
)
def test_an_error_names_the_line_and_the_key_and_not_the_value(
    path: Path, text: str, code: str, parts: tuple[str, ...]
) -> None:
    error = error_of(path, text)
    assert error.code == code
    assert str(path) in error.message
    assert all(part in str(error) for part in parts), str(error)
    assert "secret" not in str(error).replace("settings", "")


@pytest.mark.parametrize(
    ("name", "value"), [("X_MAIL_PORT", "many"), ("X_LEVEL", "middle"), ("X_IS_OPEN", "perhaps")]
)
def test_an_error_names_the_variable(name: str, value: str) -> None:
    error = error_of(None, environ={"X_NAME": "x", "X_MAIL_HOST": "h", name: value})
    assert error.code == "config.bad-setting"
    assert name in error.message
    assert value not in str(error)


def test_an_unknown_argument_is_an_error() -> None:
    assert error_of(None, arguments={"nam": "x"}).code == "config.unknown-setting"


def test_a_byte_order_mark_is_not_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(b"\xef\xbb\xbfname = 1\n")
    assert SettingsFile.load(path).data == {"name": 1}


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    def code_of(path: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            SettingsFile.load(path, limit=10)
        return caught.value.code

    file = tmp_path / "file"
    assert code_of(file) == "config.missing"
    assert code_of(tmp_path) == "config.unreadable"
    file.write_bytes(b"x" * 11)
    assert code_of(file) == "config.too-long"
    file.write_bytes(b"\xff")
    assert code_of(file) == "config.syntax"
    file.write_bytes(b"a = 'x\n")
    assert code_of(file) == "config.syntax"


def test_a_secret_that_is_refused_is_not_shown(path: Path) -> None:
    error = error_of(path, "name = 'x'\n[mail]\nhost = 'h'\npassword = ['hunter2']")
    assert error.code == "config.bad-setting"
    assert "hunter2" not in str(error)
