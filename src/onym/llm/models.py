"""Facts about models, as data: what the models of a family accept, and when a model ends.

`model_profiles.json` has the parameters and tool choices of each family. `find_profile` returns the first
profile that matches, so the order matters. IDs at Amazon Bedrock may start with a geography (`us.`,
`global.`) and be part of an ARN; if it hides the model, `bedrock-other` applies.

`model_retirements.json` has the dates that providers have announced. Other providers of the same model have
dates of their own, so a date applies only at the provider that announced it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import date, timedelta
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

#: what a call may ask for: a choice that is neither of these names a tool
_GENERAL_CHOICES = frozenset({"auto", "none", "required"})

#: never, only on request, unless switched off, and without a way to switch it off
Reasoning: TypeAlias = Literal["never", "opt-in", "default", "always"]
#: what OpenAI's chat completions offer for a model: all, no tools while it reasons, or nothing
ChatSupport: TypeAlias = Literal["all", "no-tools-while-reasoning", "none"]


class ChoiceRefusal(NamedTuple):
    """Why a tool choice is refused, and where that rule comes from."""

    reason: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Facts about a model family at any provider.

    `providers` are names of provider entries and `dialects` are API formats (empty means any). `matches` are
    globs for the model's name; the first profile that matches applies. `params` renames well-known
    parameters for this family; None means that it has no such parameter.

    Three mappings from a parameter, by its well-known name or its wire name, to a reason: `refuses` always
    applies, `refuses_reasoning` while the model reasons, and `ignores` has parameters that are accepted
    without effect. Of each group in `exclusive`, only one parameter may be sent. `defaults` are well-known
    parameters that the API requires. `effort` has the wire names of the parameter that switches reasoning,
    and `off` is its value that stops reasoning. `refuses_values` has, by wire name, values that are refused,
    with the reason. `chat` is what the chat completions of a provider that also has the Responses API offer.

    Two mappings from a tool choice to a reason: `refuses_choice` always applies, `refuses_choice_reasoning`
    while the model reasons, unless one of the parameters in `frees_choice` has the value given there. The
    keys are "none", "required" and "named", for a choice that names a tool. With `choice_stops_reasoning`, a
    model that is forced to call a tool answers without reasoning.
    """

    family: str
    providers: tuple[str, ...] = ()
    dialects: tuple[str, ...] = ()
    matches: tuple[str, ...] = ("*",)
    params: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    reasoning: Reasoning = "never"
    effort: tuple[str, ...] = ("reasoning_effort", "reasoning.effort")
    off: Any = field(default="none", hash=False)
    refuses: Mapping[str, str] = field(default_factory=dict, hash=False)
    refuses_reasoning: Mapping[str, str] = field(default_factory=dict, hash=False)
    ignores: Mapping[str, str] = field(default_factory=dict, hash=False)
    exclusive: tuple[tuple[str, ...], ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)
    chat: ChatSupport = "all"
    refuses_values: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    refuses_choice: Mapping[str, str] = field(default_factory=dict, hash=False)
    refuses_choice_reasoning: Mapping[str, str] = field(default_factory=dict, hash=False)
    frees_choice: Mapping[str, str] = field(default_factory=dict, hash=False)
    choice_stops_reasoning: bool = False
    source: str
    checked: str

    def __post_init__(self) -> None:
        for member in fields(self):
            if isinstance(value := getattr(self, member.name), Mapping):
                object.__setattr__(self, member.name, MappingProxyType(dict(value)))

    def applies_to(self, provider: str, model: str, dialect: str | None = None) -> bool:
        """Whether this profile applies to a model at a provider, in an API format."""
        if self.providers and provider not in self.providers:
            return False
        if self.dialects and dialect is not None and dialect not in self.dialects:
            return False
        return any(fnmatchcase(model.lower(), glob) for glob in self.matches)

    def is_reasoning(self, extra: Mapping[str, Any]) -> bool:
        """Whether the model reasons in a call with these pass-through parameters."""
        if self.reasoning in ("never", "always"):
            return self.reasoning == "always"
        effort = next(
            (value for name in self.effort if (value := _get_member(extra, name)) is not None), None
        )
        return self.reasoning == "default" if effort is None else bool(effort != self.off)

    def get_refusals(self, extra: Mapping[str, Any]) -> Mapping[str, str]:
        """Parameter to reason, for a call with these pass-through parameters."""
        if self.is_reasoning(extra):
            return {**self.refuses, **self.refuses_reasoning}
        return self.refuses

    def find_chat_gap(self, extra: Mapping[str, Any], *, tools: bool) -> str | None:
        """Return why chat completions cannot serve a call with or without tools, None if they can."""
        if self.chat == "none":
            return "chat completions do not serve this model"
        if tools and self.chat == "no-tools-while-reasoning" and self.is_reasoning(extra):
            return "chat completions take no tools while this model reasons"
        return None

    def find_value_refusal(self, name: str, value: Any) -> str | None:
        """Return why the model refuses this value of a pass-through parameter, None if it does not."""
        for wire, refused in self.refuses_values.items():
            if wire.partition(".")[0] == name:
                given = _get_member({name: value}, wire)
                if isinstance(given, str) and given in refused:
                    return refused[given]
        return None

    def find_choice_refusal(self, choice: str, extra: Mapping[str, Any]) -> ChoiceRefusal | None:
        """Return why the model refuses this tool choice, None if it does not.

        `choice` is auto, none, required or the name of a tool; `extra` are the call's pass-through
        parameters.
        """
        kind = get_choice_kind(choice)
        reason = self.refuses_choice.get(kind)
        if reason is None and kind in self.refuses_choice_reasoning and self.is_reasoning(extra):
            freed = any(_get_member(extra, wire) == value for wire, value in self.frees_choice.items())
            reason = None if freed else self.refuses_choice_reasoning[kind]
        return None if reason is None else ChoiceRefusal(reason, self.source)

    def as_dict(self) -> dict[str, Any]:
        """The profile as plain data."""
        return {member.name: _to_plain(getattr(self, member.name)) for member in fields(self)}


def get_choice_kind(choice: str) -> str:
    """Return the kind of a tool choice: auto, none, required, or "named" for the name of a tool."""
    return choice if choice in _GENERAL_CHOICES else "named"


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _to_plain(item) for name, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _get_member(extra: Mapping[str, Any], name: str) -> Any:
    """Return a member by its wire name; a dot leads to a member of an object."""
    value: Any = extra
    for step in name.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _load_rows(name: str) -> list[dict[str, Any]]:
    # json, because `onym check` needs the rows and does not load msgspec
    rows: list[dict[str, Any]] = json.loads(Path(__file__).with_name(name).read_bytes())
    return rows


#: the members of a profile that map names to a reason; the file lists the names of one reason in one text
_REASONS: Final = ("refuses", "refuses_reasoning", "ignores", "refuses_choice", "refuses_choice_reasoning")


@cache
def load_profiles() -> tuple[Profile, ...]:
    """Return the profiles of the file, which is read when they are first needed."""
    return tuple(_build_profiles())


def _build_profiles() -> Iterator[Profile]:
    """Yield the profiles in order. Those of one group share members, which a profile may override.

    A profile's `models` are names that become globs by the patterns of its group; `matches` are globs.
    """
    for group in _load_rows("model_profiles.json"):
        for row in group["profiles"]:
            members = {**group.get("shared", {}), **row}
            globs = [glob.format(name) for name in members.pop("models", ()) for glob in group["globs"]]
            if globs:
                members["matches"] = [*globs, *members.get("matches", ())]
            for name in _REASONS:
                members[name] = _expand_names(members.get(name, {}))
            refused = members.get("refuses_values", {})
            members["refuses_values"] = {wire: _expand_names(values) for wire, values in refused.items()}
            yield Profile(**{name: _to_tuples(value) for name, value in members.items()})


def _expand_names(reasons: Mapping[str, str]) -> dict[str, str]:
    return {name: reason for names, reason in reasons.items() for name in names.split()}


def _to_tuples(value: Any) -> Any:
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value


#: for an unknown model: everything is sent, and the server decides
DEFAULT_PROFILE: Final = Profile(family="default", source="no profile names this model", checked="2026-11-21")


@lru_cache(maxsize=512)
def find_profile(provider_name: str, model: str, dialect: str | None = None) -> Profile:
    """Return the first profile for this model at the provider, else `DEFAULT_PROFILE`."""
    profiles = (profile for profile in load_profiles() if profile.applies_to(provider_name, model, dialect))
    return next(profiles, DEFAULT_PROFILE)


#: how long before its end `onym check` and `onym explain` warn about a model
RETIREMENT_NOTICE: Final = timedelta(days=90)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """The end of a model at a provider.

    `ends` is the day from which the provider does not serve it, `replacement` the model that the provider
    recommends, None if that is not known. `source` and `checked` say where the date is from, and when that
    was read.
    """

    provider: str
    model: str
    ends: date
    replacement: str | None
    source: str
    checked: str


@cache
def load_retirements() -> Mapping[tuple[str, str], Retirement]:
    """Return the announced ends of models by provider and model. They are read when first needed."""
    retirements = [
        Retirement(
            provider=row["provider"],
            model=model,
            ends=date.fromisoformat(notice["ends"]),
            replacement=notice.get("replacement"),
            source=row["source"],
            checked=row["checked"],
        )
        for row in _load_rows("model_retirements.json")
        for notice in row["notices"]
        for model in notice["models"]
    ]
    return MappingProxyType({(row.provider, row.model): row for row in retirements})


def find_retirement(provider_name: str, model: str) -> Retirement | None:
    """Return the announced end of a model at a provider, None if none is known.

    A fine-tuned model of OpenAI ends with its base model.
    """
    model = model.lower()
    if model.startswith("ft:"):
        model = model.split(":")[1]
    return load_retirements().get((provider_name, model))


def describe_retirement(retirement: Retirement | None, today: date) -> str | None:
    """Return what users should know about the end of a model, None if it is more than 90 days away."""
    if retirement is None or retirement.ends - today > RETIREMENT_NOTICE:
        return None
    verb = "was retired on" if retirement.ends <= today else "ends on"
    advice = "" if retirement.replacement is None else f"; use {retirement.replacement}"
    return f"{retirement.model} {verb} {retirement.ends.isoformat()}{advice}"
