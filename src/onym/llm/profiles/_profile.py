"""What one family of models can and cannot take, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

__all__ = ["Profile", "Reasoning"]

#: never; only when asked for; unless switched off; and with no way to switch it off
Reasoning: TypeAlias = Literal["never", "opt-in", "default", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Facts about a model family, whoever's row serves it.

    `providers` are names of rows (empty = any), `dialects` wire formats (empty = any), `matches` are globs
    over the model text; the first profile that fits wins. `params` renames well-known parameters for this
    family, None = it has no
    such parameter. `refuses` always hold, `refuses_reasoning` while the model reasons, and `ignores`
    are accepted and without effect: each maps a parameter, by its well-known or its wire name, to
    the reason; of each group in `exclusive` no two may be sent together. `defaults` are well-known
    parameters that are sent where nobody says otherwise, because the API demands them. `effort` are the wire
    names of the switch that `reasoning` speaks of, `off` the value of it that stops reasoning.
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
    source: str
    checked: str

    def __post_init__(self) -> None:
        for name in ("params", "refuses", "refuses_reasoning", "ignores", "defaults"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def fits(self, provider: str, model: str, dialect: str | None = None) -> bool:
        """Whether this profile is about that model at that provider row, in that wire format."""
        if self.providers and provider not in self.providers:
            return False
        if self.dialects and dialect is not None and dialect not in self.dialects:
            return False
        return any(fnmatchcase(model.lower(), glob) for glob in self.matches)

    def reasons(self, extra: Mapping[str, Any]) -> bool:
        """Whether the model reasons in a call with these pass-through parameters."""
        if self.reasoning in ("never", "always"):
            return self.reasoning == "always"
        effort = next((value for name in self.effort if (value := _at(extra, name)) is not None), None)
        return self.reasoning == "default" if effort is None else bool(effort != self.off)

    def refusals(self, extra: Mapping[str, Any]) -> Mapping[str, str]:
        """Parameter to reason, for a call with these pass-through parameters."""
        if self.reasons(extra):
            return {**self.refuses, **self.refuses_reasoning}
        return self.refuses

    def as_dict(self) -> dict[str, Any]:
        """The profile as plain data."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: dict(value)
            if isinstance(value, Mapping)
            else list(value)
            if isinstance(value, tuple)
            else value
            for name, value in plain.items()
        }


def _at(extra: Mapping[str, Any], name: str) -> Any:
    """A member by its wire name; dots lead into objects."""
    value: Any = extra
    for step in name.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value
