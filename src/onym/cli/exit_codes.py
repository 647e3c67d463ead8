"""Which number the process ends with, for every error class; stable across releases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onym import errors

__all__ = [
    "AIIP",
    "BAD_URI",
    "BROKEN_PIPE",
    "CHECK_FAILED",
    "CONFIGURATION",
    "EMBEDDED",
    "INPUT_OUTPUT",
    "INTERNAL",
    "INTERRUPTED",
    "MEANINGS",
    "NETWORK",
    "OK",
    "PROVIDER",
    "REFUSED",
    "REGISTRY",
    "SIGNATURE",
    "TERMINATED",
    "TIMEOUT",
    "UNSUPPORTED",
    "USAGE",
    "get_exit_code",
]

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
INTERNAL: Final = 70
INPUT_OUTPUT: Final = 74
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
TERMINATED: Final = 143

#: what each number says, in the words of `onym --help`
MEANINGS: Final[Mapping[int, str]] = {
    OK: "all went well",
    CHECK_FAILED: "`check`, `config check` or `scheme check` found errors, `scheme match` or `diff` "
    "says no, `ai audit verify` finds a log broken, or rows of a batch failed or are left",
    USAGE: "the command line, or a file that it names, cannot be used",
    BAD_URI: "the text is not the URI it should be",
    CONFIGURATION: "configuration file, named endpoint or credential",
    REFUSED: "refused by policy before anything was sent",
    NETWORK: "no usable answer from the network",
    PROVIDER: "the server answered with a failure",
    TIMEOUT: "the time allowed is over",
    UNSUPPORTED: "the provider or model cannot do that; nothing was sent",
    EMBEDDED: "the model on this machine, or an extra that is not installed",
    REGISTRY: "refused by the registry's procedure, or its file, grammar or store is not usable",
    SIGNATURE: "a signature or receipt that does not hold",
    AIIP: "an ai:// name that cannot be trusted, or that its endpoint or a policy refuses (where the network "
    "is why a name leads nowhere: 5, 6 or 8)",
    INTERNAL: "a bug in onym (ONYM_DEBUG=1 shows where)",
    INPUT_OUTPUT: "a file or stream could not be read or written",
    INTERRUPTED: "Ctrl-C",
    BROKEN_PIPE: "the reader of our output went away",
    TERMINATED: "SIGTERM",
}


def get_exit_code(error: errors.OnymError) -> int:
    """The exit code of the error's class; after a failed discovery, that of the network error behind it."""
    cause = error.__cause__
    if isinstance(error, errors.DiscoveryError) and isinstance(cause, errors.NetError):
        return get_exit_code(cause)
    return error.exit_code
