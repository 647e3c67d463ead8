"""What `check` says of an llm URI: findings with code, clause, severity, span and, if there is one, a fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, final

from onym.errors import LLMURIError, ParameterError

if TYPE_CHECKING:
    from onym.uri.llm import LLMURI

__all__ = ["SEVERITIES", "Diagnostic", "Report", "Severity"]

#: error: the draft forbids it, or it can't work; warning: discouraged, or likely a slip; note: good to know
Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: Final = ("error", "warning", "note")


class _Frozen:
    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} does not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} does not change")


@final
class Diagnostic(_Frozen):
    """One finding.

    `code` is stable ("llm.raw-model"), `message` is for people and holds no value. `start` and `end` count
    characters in the text that was checked. `parameter` names the parameter at fault, `clause` the rule.
    `fix` is the whole text with this one thing put right, its keys masked; None where there is no one fix.
    """

    __slots__ = ("clause", "code", "component", "end", "fix", "message", "parameter", "severity", "start")
    code: str
    severity: Severity
    message: str
    clause: str | None
    component: str | None
    start: int
    end: int
    fix: str | None
    parameter: str | None

    def __init__(
        self,
        code: str,
        severity: Severity,
        message: str,
        *,
        clause: str | None,
        component: str | None,
        start: int,
        end: int,
        fix: str | None = None,
        parameter: str | None = None,
    ) -> None:
        given = (clause, code, component, end, fix, message, parameter, severity, start)
        for name, value in zip(self.__slots__, given, strict=True):
            object.__setattr__(self, name, value)

    def as_dict(self) -> dict[str, Any]:
        """The finding as plain data, what is None left out."""
        names = ("code", "severity", "message", "clause", "component", "start", "end", "parameter", "fix")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def as_error(self) -> LLMURIError:
        """The finding as the refusal that `strict` makes of it."""
        in_query = self.component == "query" and self.parameter is not None
        kind = ParameterError if in_query else LLMURIError
        return kind(
            self.message,
            code=self.code,
            component=self.component,
            offset=self.start,
            clause=self.clause,
            parameter=self.parameter,
        )

    def __repr__(self) -> str:
        return f"<Diagnostic {self.severity} {self.code} {self.start}-{self.end}>"

    def __str__(self) -> str:
        rule = "" if self.clause is None else f" [{self.clause}]"
        return f"{self.severity}: {self.message} at {self.start}-{self.end}{rule} ({self.code})"

    def __eq__(self, other: object) -> bool:
        return self.as_dict() == other.as_dict() if isinstance(other, Diagnostic) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.code, self.start, self.end, self.message))


@final
class Report(_Frozen):
    """What `check` found, in order of the text; `uri` is None where the text was refused."""

    __slots__ = ("_fixed", "diagnostics", "uri")
    uri: LLMURI | None
    diagnostics: tuple[Diagnostic, ...]
    _fixed: LLMURI | None

    def __init__(
        self, uri: LLMURI | None, diagnostics: tuple[Diagnostic, ...], fixed: LLMURI | None = None
    ) -> None:
        object.__setattr__(self, "uri", uri)
        object.__setattr__(self, "diagnostics", diagnostics)
        object.__setattr__(self, "_fixed", fixed)

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The diagnostics of severity error."""
        return self._of("error")

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The diagnostics of severity warning."""
        return self._of("warning")

    @property
    def notes(self) -> tuple[Diagnostic, ...]:
        """The diagnostics of severity note."""
        return self._of("note")

    @property
    def ok(self) -> bool:
        """Whether there is a value, and no error."""
        return self.uri is not None and not self.errors

    def _of(self, severity: Severity) -> tuple[Diagnostic, ...]:
        return tuple(found for found in self.diagnostics if found.severity == severity)

    def fixed(self, *, reveal: bool = False) -> str | None:
        """The URI with every fix made, as Onym writes it; None where no URI comes of them.

        Keys are `***` unless `reveal` is true.
        """
        return None if self._fixed is None else self._fixed.render(reveal=reveal)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, keys masked."""
        return {
            "ok": self.ok,
            "uri": None if self.uri is None else str(self.uri),
            "fixed": self.fixed(),
            "diagnostics": [found.as_dict() for found in self.diagnostics],
        }

    def __repr__(self) -> str:
        return (
            f"<Report of {len(self.errors)} errors, {len(self.warnings)} warnings, {len(self.notes)} notes>"
        )
