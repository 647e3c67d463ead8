"""How to go on after an error: its hint in the words of the command line, and the command to run next."""

from __future__ import annotations

from onym import errors
from onym.cli._input import SCHEME_HINT
from onym.cli._output import Session, Subject
from onym.cli._text import printable

__all__ = ["hint_of", "next_command"]

#: the command that brings one further, by the class of the error; {uri} is what stood on the command line
_NEXT: dict[type[errors.OnymError], str] = {
    errors.URIError: "onym check {uri}",
    errors.ConfigError: "onym config check",
    errors.CredentialError: "onym explain {uri}",
    errors.PolicyError: "onym explain {uri}",
    errors.NetError: "onym ping {uri}",
    errors.AuthenticationError: "onym explain {uri}",
    errors.BadRequestError: "onym explain {uri}",
    errors.NotFoundError: "onym models list {uri}",
    errors.UsageError: "onym{command} --help",
}
#: the same for what is not about an llm URI, or the file that `onym config` reads
_NEXT_ELSEWHERE: dict[type[errors.OnymError], str] = {
    errors.URIError: "onym check {uri}",
    errors.DiscoveryError: "onym ai discover {uri}",
    errors.NetError: "onym ai discover {uri}",
    errors.UsageError: "onym{command} --help",
}
_ELSEWHERE = frozenset({"ai", "gateway", "registry"})
#: the same by code, where the class says too little
_NEXT_BY_CODE = {
    "config.exists": "onym config show",
    "config.no-endpoint": "onym config show",
    "embedded.unknown-model": "onym models list --local",
    "ai.wrong-scheme": "onym ai --help",
    "aiip.endpoint-unknown": "onym ai discover {uri}",
    "aiip.invalid-input": "onym ai describe {uri}",
    "aiip.unknown-authority": "onym ai discover {uri}",
    "aiip.upstream-unreachable": "onym ai discover {uri}",
    "registry.no-database": "onym registry init --db registry.db",
    "registry.no-template": "onym registry template",
    "registry.unknown-account": "onym registry user list",
    "registry.unknown-request": "onym registry review",
    "registry.wrong-schema": "onym registry init",
    "registry.broken-chain": "onym registry verify",
}
#: what the provider or the model does not take: `check` shows all of it at once
_REFUSED = frozenset(
    {"llm.unsupported", "llm.no-format", "llm.provider-range", "llm.no-api", "llm.no-path-value"}
)
#: what the library says to programmers, said to whoever sits at the command line
_HINTS = {
    "uri.no-scheme": SCHEME_HINT,
    "net.refused.loopback": "a URI typed here may lead to this machine; for one from a file, a variable or a "
    "pipe add --policy local, or set ONYM_ALLOW_LOOPBACK=1",
}
#: the same for ai names
_AI_HINTS = {
    "uri.no-scheme": "an ai URI begins with ai://, as in ai://bank.example/balance",
    "net.refused.loopback": "--policy local (the default) allows this machine",
    "net.refused.port": "--policy trusted allows every port, --policy local this machine too",
}


def hint_of(session: Session, error: errors.OnymError) -> str | None:
    """What may help, for whoever sits at the command line."""
    meant = _meant(session, error)
    if meant is not None:
        return f"did you mean {meant}?"
    if error.hint is None:
        return None
    hint = error.hint.replace('on_unsupported="drop"', "--on-unsupported drop")
    return (_AI_HINTS if _of_ai(session) else _HINTS).get(_reason(error), hint)


def _of_ai(session: Session) -> bool:
    return session.command.startswith("ai ")


def _reason(error: errors.OnymError) -> str:
    """The code that says why; discovery that met a policy has one of its own."""
    cause = error.__cause__
    return cause.code if isinstance(cause, errors.PolicyError) else error.code


def _meant(session: Session, error: errors.OnymError) -> str | None:
    """The URI that was probably meant: a slip in a word of the provider's, or no scheme before one."""
    subject = session.subject
    if subject is None or not subject.typed:
        return None
    if error.code == "ai.wrong-scheme":
        return session.masked("ai://" + (subject.text.partition("://")[2] or subject.text))
    if error.code == "uri.no-scheme":
        return _with_scheme(session, subject.text)
    if error.code not in ("llm.no-api", "llm.no-path-value"):
        return None
    from onym.cli._input import user_providers
    from onym.cli._provider_check import slips

    return next((each.fix for each in slips(subject.text, user_providers()) if each.fix), None)


def _with_scheme(session: Session, text: str) -> str | None:
    """`openai/gpt-5` as the URI it would be, where its first word is a provider's; an ai name as one."""
    if _of_ai(session):
        return session.masked(f"ai://{text}") if text[:1].isalnum() else None
    from onym.cli._input import user_providers

    word, slash, model = text.partition("/")
    if not slash or not model or user_providers().alias(word) is None:
        return None
    return session.masked(f"llm://{text}")


def next_command(session: Session, error: errors.OnymError) -> str | None:
    """What to run next, or None where nothing in particular helps."""
    command = getattr(error, "command", None)
    if isinstance(command, str):
        return session.masked(command)
    if error.code in _REFUSED:
        return _check_command(session)
    if isinstance(error, errors.URIError) and error.offset is None:
        # not about the text of the URI, but about a value from elsewhere
        return None
    if error.code in _NEXT_BY_CODE:
        return _with_uri(session, _NEXT_BY_CODE[error.code])
    table = _NEXT_ELSEWHERE if (session.command or "").partition(" ")[0] in _ELSEWHERE else _NEXT
    for cls in type(error).__mro__:
        template = table.get(cls)
        if template is None or template.startswith(f"onym {session.command} "):
            continue
        if "{uri}" not in template:
            return template.format(command=f" {session.command}" if session.command else "")
        return _with_uri(session, template)
    return None


def _with_uri(session: Session, template: str) -> str | None:
    """The command with the URI in its place; None where there is none, or it is what just ran."""
    if "{uri}" not in template:
        return template
    if session.subject is None or template.startswith(f"onym {session.command} "):
        return None
    return template.format(uri=_argument(session, session.subject))


def _check_command(session: Session) -> str | None:
    """`onym check`, where it says more of this URI; a value from elsewhere it does not see."""
    from onym.cli._input import user_providers
    from onym.cli._provider_check import provider_findings

    subject = session.subject
    if subject is None or subject.argument == "-" or session.command == "check":
        return None
    found = provider_findings(subject.text, user_providers())
    return f"onym check {_argument(session, subject)}" if found else None


def _argument(session: Session, subject: Subject) -> str:
    """The URI argument as a person would type it again; a key in it is masked."""
    from shlex import quote

    return quote(printable(session.masked(subject.argument)))
