"""The exit code of each error class; stable across releases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onym import errors

OK: Final = 0
CHECK_FAILED: Final = 1
USAGE: Final = 2
BAD_URI: Final = 3
CONFIGURATION: Final = 4
REFUSED: Final = 5
NETWORK: Final = 6
PROVIDER: Final = 7
TIMEOUT: Final = 8
UNSUPPORTED: Final = 9
EMBEDDED: Final = 10
REGISTRY: Final = 11
SIGNATURE: Final = 12
AIIP: Final = 13
APPROVAL: Final = 14
TASK_RUNNING: Final = 15
INTERNAL: Final = 70
INPUT_OUTPUT: Final = 74
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
TERMINATED: Final = 143

#: the meaning of each code, as `onym help exit-codes` prints it
MEANINGS: Final[Mapping[int, str]] = {
    OK: "success",
    CHECK_FAILED: "`check`, `config check` or `scheme check` found errors, `redact --check` found a "
    "credential, `scheme match` or `diff` found no match, `ai audit verify` found a broken log, `ai gateway "
    "check` found a part that cannot be used, `ai gateway sessions end` found no session, or rows of a batch "
    "failed or remain",
    USAGE: "invalid command line, or a file that it or a variable names does not exist or cannot be used",
    BAD_URI: "invalid URI",
    CONFIGURATION: "invalid configuration file, unknown endpoint or missing credential",
    REFUSED: "rejected by policy before anything was sent",
    NETWORK: "network failure, or an unusable response",
    PROVIDER: "the server answered with an error",
    TIMEOUT: "timeout",
    UNSUPPORTED: "not supported by the provider or model; nothing was sent",
    EMBEDDED: "the embedded model failed, or an extra is not installed",
    REGISTRY: "rejected by the registry's procedure, or an invalid registry file, grammar or database",
    SIGNATURE: "invalid signature or receipt",
    AIIP: "an ai:// name could not be resolved, or the endpoint or a policy refused the request",
    APPROVAL: "the request waits for the approval of people",
    TASK_RUNNING: "the request runs as a long task (`ai tasks` shows it)",
    INTERNAL: "a bug in Onym (ONYM_DEBUG=1 shows the traceback)",
    INPUT_OUTPUT: "a file or stream could not be read or written",
    INTERRUPTED: "Ctrl-C, or a question that was not answered with yes",
    BROKEN_PIPE: "the reader of the output closed the pipe",
    TERMINATED: "SIGTERM",
}


#: codes of errors about a missing file
_MISSING: Final = frozenset({"audit.missing", "config.missing"})


def get_exit_code(error: errors.OnymError) -> int:
    """Return the exit code of the error's class, or of what caused it.

    A missing file has one code for every command, and discovery that the network ended has the network's.
    """
    cause = error.__cause__
    if error.code in _MISSING or _is_about_missing_file(error):
        return USAGE
    if isinstance(error, errors.DiscoveryError) and isinstance(cause, errors.NetError):
        return get_exit_code(cause)
    return error.exit_code


def _is_about_missing_file(error: BaseException) -> bool:
    """Return whether the error, or one that it replaces, is about a missing file."""
    while error.__cause__ is not None:
        error = error.__cause__
    return isinstance(error, FileNotFoundError)
