"""The JSON Schemas of settings files: what they accept is what Onym reads, in every example that is shown."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest
from docgen.config_schemas import SCHEMAS, encode_schema
from docgen.fences import fences
from docgen.paths import DOCS, EXAMPLES, ROOT, pages

from onym.cli.commands import config as config_commands
from onym.common.settings import load_settings
from onym.errors import ConfigError
from onym.llm.config import Config
from onym.registry.definitions import load_definition
from onym.server.gateway.settings import GatewaySettings
from onym.server.settings import Settings
from support import as_subtests

VALIDATORS = {name: jsonschema.Draft202012Validator(json.loads(encode_schema(name))) for name in SCHEMAS}
#: a table or a key that only one of the files has
MARKS = {
    "endpoints": "config", "profiles": "config", "policy": "config", "network": "config",
    "smtp": "registry", "oidc": "registry", "webhooks": "registry", "quotas": "registry",
    "registries": "registries",
    "namespaces": "gateway", "programs": "gateway", "authorization_servers": "gateway",
    "approvers": "gateway", "rate_store": "gateway", "replays": "gateway", "fleet": "gateway",
}  # fmt: skip
#: TOML blocks that are files of other programs, or of other parts of Onym
OTHERS = ("prices.toml", "canaille.toml")


def find_schema(data: Mapping[str, Any]) -> str | None:
    """The schema for the values of a block."""
    if isinstance(data.get("providers"), dict):
        return "config"
    if isinstance(data.get("providers"), list):
        return "gateway"
    return next((MARKS[name] for name in data if name in MARKS), None)


def iter_blocks() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(place, name of the schema, values) of every settings file that the documentation shows."""
    for page in pages():
        for fence in fences(page.read_text(encoding="utf-8")):
            if fence.language != "toml" or (fence.verb == "file" and fence.argument in OTHERS):
                continue
            data = tomllib.loads(fence.body)
            name = find_schema(data)
            if name is not None:
                yield f"{page.relative_to(ROOT)}:{fence.line}", name, data


BLOCKS = list(iter_blocks())


def errors(name: str, data: Mapping[str, Any], *, part: bool = False) -> list[str]:
    """What is wrong with these values; a `part` of a file may leave out what a file must have."""
    found = VALIDATORS[name].iter_errors(data)
    return [
        f"{error.json_path}: {error.message}"
        for error in found
        if not (part and error.validator == "required" and not error.path)
    ]


@as_subtests("name", SCHEMAS)
def test_a_schema_is_a_schema_and_the_same_on_the_site_and_in_the_package(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(VALIDATORS[name].schema)
    shipped = config_commands.get_schema_path(name)
    assert shipped.read_text(encoding="utf-8") == encode_schema(name)
    assert (DOCS / "schemas" / shipped.name).read_text(encoding="utf-8") == encode_schema(name)


def test_the_examples_of_the_documentation_are_of_all_files() -> None:
    assert {name for _, name, _ in BLOCKS} == set(SCHEMAS)


@as_subtests("block", BLOCKS, ids=lambda block: block[0])
def test_an_example_of_a_page_is_valid(block: tuple[str, str, dict[str, Any]]) -> None:
    _, name, data = block
    assert errors(name, data, part=True) == []


@as_subtests("block", BLOCKS, ids=lambda block: block[0])
def test_an_unknown_key_of_any_table_of_an_example_is_an_error(
    block: tuple[str, str, dict[str, Any]],
) -> None:
    _, name, data = block
    assert errors(name, data | {"no_such_key": 1}, part=True)
    for key, value in data.items():
        rows = value if isinstance(value, list) else [value]
        if all(isinstance(row, dict) for row in rows) and key not in {
            "endpoints",
            "profiles",
            "providers",
            "labels",
        }:
            wrong = [row | {"no_such_key": 1} for row in rows]
            assert errors(name, data | {key: wrong if isinstance(value, list) else wrong[0]}, part=True), key


def test_what_config_init_writes_is_valid_with_every_line_in_force() -> None:
    text = re.sub(r"^# (?=\[|[a-z_]+ = )", "", config_commands.TEMPLATE, flags=re.MULTILINE)
    data = tomllib.loads(text)
    assert {"endpoints", "profiles", "policy", "network", "providers"} == data.keys()
    assert errors("config", data) == []


#: a file, what reads it, and values that reader and schema both refuse
WRONG: list[tuple[str, str]] = [
    ("config", "[policy]\npreset = 'trustd'\n"),
    ("config", "[policy]\nallow_loopback = 'yes'\n"),
    ("config", "[network]\nca_files = 'a.pem'\n"),
    ("config", "[network]\nclient_key = 'a.pem'\n"),
    ("config", "[endpoints]\nfast = 7\n"),
    ("config", "[endpoints]\n'a b' = 'llm://h/m'\n"),
    ("config", "[endpoints.fast]\nheaders = {}\n"),
    ("config", "[providers.x]\nhost = ['h.example']\n"),
    ("config", "[servers]\n"),
    ("gateway", "port = 70000\n"),
    ("gateway", "workers = 0\n"),
    ("gateway", "network = 'private'\n"),
    ("gateway", "dns = 'perhaps'\n"),
    ("gateway", "[[namespaces]]\nfile = 'a'\n"),
    ("gateway", "[rates.reads]\nburst = 1\nper_minute = 0\n"),
    ("gateway", "prefix = '/x'\n"),
    ("registry", "token_days = 0\n"),
    ("registry", "[smtp]\nhost = 'mail.example'\n"),
    ("registry", "[smtp]\nhost = 'mail.example'\nsender = 'a@b.example'\nsecurity = 'ssl'\n"),
    ("registry", "profile = 'rfc9999'\n"),
    ("registries", "title = 'Ours'\n"),
]
READERS = {
    "config": lambda path: Config.load(path),
    "gateway": lambda path: load_settings(GatewaySettings, path),
    "registry": lambda path: load_settings(Settings, path),
    "registries": load_definition,
}


@as_subtests("wrong", WRONG, ids=lambda wrong: " ".join(wrong[1].split()))
def test_the_schema_refuses_what_the_reader_refuses(wrong: tuple[str, str], tmp_path_factory: Any) -> None:
    name, text = wrong
    assert errors(name, tomllib.loads(text))
    path = tmp_path_factory.mktemp("settings") / "settings.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError):
        READERS[name](path)


def test_the_example_of_the_reference_names_the_schema() -> None:
    text = (EXAMPLES / "config.toml").read_text(encoding="utf-8")
    assert text.startswith("#:schema ./config.schema.json\n")
    assert errors("config", tomllib.loads(text)) == []
