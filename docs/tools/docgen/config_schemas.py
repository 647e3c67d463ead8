"""JSON Schemas (2020-12) of the configuration files, from the types that the files are read into."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from onym.llm.config import NETWORK_KEYS, RECORD_KINDS, NetworkSettings
from onym.llm.providers import Provider
from onym.net.policy import PRESETS, Policy
from onym.registry.definitions import DefinitionTable
from onym.server.gateway.settings import GatewaySettings
from onym.server.settings import Settings
from onym.uri.secret import Secret

__all__ = ["SCHEMAS", "encode_schema"]

Schema: TypeAlias = dict[str, Any]
_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    Secret: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    Any: {},
}
#: TOML has no null: `false` in a map of names means that there is no such name
_NO_NAME: Schema = {"const": False, "description": "false: the provider has no such name"}
_URI: Schema = {
    "type": "string",
    "pattern": "^[Ll][Ll][Mm]://",
    "description": "An llm:// URI, without a key.",
}
_BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}


def _build_value_schema(hint: Any) -> Schema:
    """The schema of one value. None is a setting that is left out, because TOML has no null."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    if origin is Annotated:
        return _build_value_schema(arguments[0]) | _list_bounds(arguments[1:])
    if origin is Literal:
        return {"enum": [value for value in arguments if value is not None]}
    if origin in (Union, UnionType):
        options = [_build_value_schema(option) for option in arguments if option is not type(None)]
        return options[0] if len(options) == 1 else {"anyOf": options}
    if origin in (tuple, frozenset):
        return _build_list_schema(arguments)
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _build_map_value_schema(arguments[1])}
    return build_table_schema(hint)


def _list_bounds(extras: tuple[Any, ...]) -> Schema:
    return {
        keyword: value
        for extra in extras
        if isinstance(extra, msgspec.Meta)
        for name, keyword in _BOUNDS.items()
        if (value := getattr(extra, name)) is not None
    }


def _build_list_schema(arguments: tuple[Any, ...]) -> Schema:
    if len(arguments) == 1 or arguments[1] is ...:
        return {"type": "array", "items": _build_value_schema(arguments[0])}
    items = [_build_value_schema(item) for item in arguments]
    return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}


def _build_map_value_schema(hint: Any) -> Schema:
    schema = _build_value_schema(hint)
    return {"anyOf": [schema, _NO_NAME]} if type(None) in get_args(hint) else schema


def build_table_schema(
    kind: type[Any], *, without: tuple[str, ...] = (), all_optional: bool = False
) -> Schema:
    """The schema of a table that becomes this dataclass. Unknown keys are invalid."""
    hints = get_type_hints(kind, include_extras=True)
    members = [
        member
        for member in dataclasses.fields(kind)
        if member.init and not member.name.startswith("_") and member.name not in without
    ]
    required = [
        member.name
        for member in members
        if member.default is member.default_factory is dataclasses.MISSING and not all_optional
    ]
    texts = _list_sentences(kind)
    return {
        "type": "object",
        "properties": {
            member.name: _describe(_build_value_schema(hints[member.name]), member.name, texts)
            | _list_default(member.default)
            for member in members
        },
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _list_default(value: object) -> Schema:
    plain = isinstance(value, str | int | float) and value != ""
    return {"default": value} if plain else {}


def _list_sentences(kind: type[Any]) -> list[str]:
    """The sentences of the class docstring, which name the settings that they are about."""
    text = " ".join((inspect.getdoc(kind) or "").split())
    return [sentence.rstrip(".") + "." for sentence in re.split(r"(?<=\.) (?=[A-Z`\"])", text)]


def _describe(schema: Schema, name: str, sentences: list[str]) -> Schema:
    about = [sentence for sentence in sentences if f"`{name}`" in sentence]
    return {"description": " ".join(about)} | schema if about else schema


def build_config_schema() -> Schema:
    """config.toml: endpoints, profiles, policy, network and providers."""
    endpoint = {
        "type": "object",
        "properties": {
            "uri": _URI,
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["uri"],
        "additionalProperties": False,
    }
    preset = {"enum": list(PRESETS), "default": "trusted", "description": "The values of the other keys."}
    policy = build_table_schema(Policy, without=("name",), all_optional=True)
    for member in policy["properties"].values():
        member.pop("default", None)  # the preset decides
    policy["properties"] = {"preset": preset} | policy["properties"]
    provider = build_table_schema(Provider, without=("name",), all_optional=True)
    for name in ("needs_key",):
        provider["properties"][name].pop("default")
    for name, kind in RECORD_KINDS.items():
        provider["properties"][name]["additionalProperties"] = build_table_schema(kind)
    return {
        "type": "object",
        "properties": {
            "endpoints": {
                "type": "object",
                "description": "Names for URIs: onym chat NAME.",
                "propertyNames": {"pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]*$"},
                "additionalProperties": {"anyOf": [_URI, endpoint]},
            },
            "profiles": {
                "type": "object",
                "description": "Parameters by name, chosen by the fragment of a URI.",
                "additionalProperties": {"type": "object"},
            },
            "policy": policy,
            "network": _build_network_schema(),
            "providers": {
                "type": "object",
                "description": "Your own providers, and changes of built-in ones.",
                "additionalProperties": provider,
            },
        },
        "additionalProperties": False,
    }


def _build_network_schema() -> Schema:
    kinds = {str: {"type": "string"}, list: {"type": "array", "items": {"type": "string"}}}
    texts = _list_sentences(NetworkSettings)
    return {
        "type": "object",
        "properties": {
            name: _describe(dict(kinds.get(kind, {"type": "boolean"})), name, texts)
            for name, kind in NETWORK_KEYS.items()
        },
        "additionalProperties": False,
        "dependentRequired": {"client_key": ["client_cert"]},
    }


#: name of the file -> its title and the function that builds its schema
SCHEMAS: Mapping[str, tuple[str, Any]] = {
    "config": ("Onym: config.toml", build_config_schema),
    "gateway": ("Onym: settings of a gateway", lambda: build_table_schema(GatewaySettings)),
    "registry": ("Onym: settings of a registry service", lambda: build_table_schema(Settings)),
    "registries": ("Onym: registries of your own", lambda: build_table_schema(DefinitionTable)),
}


def encode_schema(name: str) -> str:
    """The text of the file."""
    title, build = SCHEMAS[name]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps(head | build(), indent=1, sort_keys=False, default=list) + "\n"
