from __future__ import annotations

import pytest

from onym import errors
from onym.cli import exit_codes
from support import as_subtests

CLASSES = [
    cls
    for name, cls in vars(errors).items()
    if not name.startswith("_") and isinstance(cls, type) and issubclass(cls, errors.OnymError)
]


@pytest.mark.requirement("onym-cli-a")
@as_subtests("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_class_has_an_exit_code_of_its_own(cls):
    assert cls.exit_code in exit_codes.MEANINGS


def test_no_error_ends_as_success_or_as_a_failed_check():
    assert not {exit_codes.OK, exit_codes.CHECK_FAILED} & {cls.exit_code for cls in CLASSES}


@as_subtests(
    ("error", "code"),
    [
        (errors.UsageError("x"), 2),
        (errors.URISyntaxError("x"), 3),
        (errors.ParameterError("x"), 3),
        (errors.CredentialError("x"), 4),
        (errors.ConfigError("x"), 4),
        (errors.PolicyError("x", reason="loopback"), 5),
        (errors.ResolveError("x"), 6),
        (errors.RateLimitError("x"), 7),
        (errors.DeadlineExceeded("x"), 8),
        (errors.UnsupportedError("x"), 9),
        (errors.MissingWeightsError("x"), 10),
    ],
)
def test_the_documented_numbers_stay_as_they_are(error, code):
    assert exit_codes.get_exit_code(error) == code


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (errors.ResolveError("x"), 6),
        (errors.ConnectionFailed("x"), 6),
        (errors.TLSError("x"), 6),
        (errors.DeadlineExceeded("x"), 8),
        (errors.PolicyError("x", reason="loopback"), 5),
        (errors.SignatureError("x"), 13),
        (None, 13),
    ],
)
def test_discovery_that_the_network_ended_has_the_networks_code(cause, code):
    assert exit_codes.get_exit_code(caused(errors.DiscoveryError("x"), cause)) == code
    assert exit_codes.get_exit_code(caused(errors.ProvenanceError("x"), cause)) == 12


def test_a_class_without_a_row_ends_as_the_one_above_it():
    class Odd(errors.ResolveError):
        pass

    assert exit_codes.get_exit_code(Odd("x")) == exit_codes.NETWORK


@pytest.mark.requirement("onym-cli-a")
def test_every_code_has_a_name_and_a_meaning():
    numbers = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    assert numbers == set(exit_codes.MEANINGS)
