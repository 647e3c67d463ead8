"""The configuration file: what it may say, and what is said of a file that is wrong."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import traceback
from pathlib import Path

import pytest

from onym.errors import ConfigError, SecretError
from onym.llm.config import Config, default_path

KEY = "sk-test-0123456789abcdefghijklmnop"

GOOD = """
[endpoints]
fast = "llm://openai/gpt-4.1-mini?temp=0.2#code-review"
home = "llm://localhost:11434/llama3"

[profiles.code-review]
temp = 0.1
system = "You review code."
frequency_penalty = 0.5

[policy]
preset = "trusted"
allow_hosts = ["api.openai.com", "localhost"]
ports = [443, 11434]

[providers.mycorp]
hosts = ["llm.mycorp.example"]
base_path = "/api/v1"
key_variables = ["MYCORP_KEY"]
ranges = { temp = [0, 1] }
"""


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "config.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_gives_endpoints_profiles_policy_and_rows(tmp_path: Path) -> None:
    config = Config.load(write(tmp_path, GOOD))
    assert dict(config.endpoints) == {
        "fast": "llm://openai/gpt-4.1-mini?temp=0.2#code-review",
        "home": "llm://localhost:11434/llama3",
    }
    assert config.profiles["code-review"]["temp"] == 0.1
    assert config.policy is not None
    assert config.policy.ports == {443, 11434}
    row = config.providers.find("llm.mycorp.example")
    assert (row.name, row.base_path, row.key_variables) == ("mycorp", "/api/v1", ("MYCORP_KEY",))
    assert row.needs_key
    assert row.ranges["temp"] == (0, 1)
    assert config.providers.find("api.openai.com").name == "openai"
    assert config.path == tmp_path / "config.toml"


def test_no_file_is_an_empty_configuration_unless_it_was_named(tmp_path: Path) -> None:
    assert Config.load(environ={}) == Config.empty()
    absent = tmp_path / "absent.toml"
    for arguments in ({"path": absent}, {"environ": {"ONYM_CONFIG": str(absent)}}):
        with pytest.raises(ConfigError) as caught:
            Config.load(**arguments)  # type: ignore[arg-type]  # one of the two
        assert caught.value.code == "config.missing"


def test_the_variable_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    assert default_path({"ONYM_CONFIG": str(path)}) == path
    assert Config.load(environ={"ONYM_CONFIG": str(path)}).path == path
    assert default_path({}).name == "config.toml"


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    config = Config.load(write(tmp_path, ""))
    assert config.policy is None
    assert not config.endpoints
    assert config.check() == ()


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("x = ]", "config.not-toml", "line 1, column 5"),
        (b"\xff", "config.not-toml", "byte 0"),
        ("#" * 1_100_000, "config.too-long", "1 MiB"),
        ("[" * 100_000, "config.not-toml", "line 1, column "),
        ("endpoints = 1", "config.invalid", ":1: endpoints: "),
        ("\n[endpoint]\nfast = 'llm://h/m'", "config.invalid", "endpoints?"),
        ("[endpoints]\nfast = 1", "config.invalid", ":2: endpoints.fast: "),
        ("[endpoints]\n'a b' = 'llm://h/m'", "config.invalid", ":2: endpoints.(a name): "),
        ("[profiles]\nx = 1", "config.invalid", ":2: profiles.x: "),
        ("[policy]\nallow_host = ['h']", "config.invalid", "allow_hosts?"),
        ("[policy]\npreset = 'open'", "config.invalid", ":1: policy: "),
        ("[policy]\nallow_loopback = 'yes'", "config.invalid", "policy"),
        ("[policy]\nallow_networks = ['10.0.0.0/99']", "config.invalid", "policy"),
        ("[providers]\nx = 1", "config.invalid", ":2: providers.x: "),
        ("[providers.x]\nhost = ['h.example']", "config.invalid", " hosts?"),
        ("[providers.x]\nhosts = 1", "config.invalid", "providers.x"),
        (
            "[providers.x]\nhosts = ['api.openai.com']",
            "config.invalid",
            "row x: api.openai.com ",
        ),
        ("[providers.x]\nhosts = ['h.example']\ndefault_port = 'a'", "config.invalid", ":1: providers.x: "),
        ("[profiles]\nx = {}\n[policy.x]\na = 1", "config.invalid", ":3: policy.x"),
        ("zzzzzz = 1", "config.invalid", "endpoints, network, policy, profiles, providers"),
    ],
)
def test_a_wrong_file_is_named_with_the_place_and_what_is_wrong(
    tmp_path: Path, text: str | bytes, code: str, says: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        Config.load(path)
    assert caught.value.code == code
    assert str(path) in str(caught.value)
    assert says in str(caught.value)


def test_a_key_in_the_wrong_place_is_not_shown(tmp_path: Path) -> None:
    for text in (f"[endpoints]\n'{KEY} x' = 'llm://h/m'", f"'{KEY}!' = 1", f"[endpoints]\na = '{KEY}"):
        with pytest.raises(ConfigError) as caught:
            Config.load(write(tmp_path, text))
        assert KEY not in str(caught.value)


def test_a_folder_in_the_files_place_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.load(tmp_path)
    assert caught.value.code == "config.unreadable"


def test_check_judges_every_endpoint_and_profile(tmp_path: Path) -> None:
    text = f"""
    [endpoints]
    wrong = "llm://h/m?temp=9"
    keyed = "llm://app:{KEY}@h.example/m#nowhere"
    [profiles.bad]
    base_url = "https://evil.example"
    [profiles.hot]
    temp = 9
    [profiles.good]
    temp = 1.5
    """
    path = write(tmp_path, text)
    path.chmod(0o644)
    config = Config.load(path)
    found = {(finding.severity, finding.where) for finding in config.check()}
    assert ("error", "endpoints.wrong") in found
    assert ("warning", "endpoints.keyed") in found
    assert ("note", "endpoints.keyed") in found
    assert ("error", "profiles.bad") in found
    assert ("error", "profiles.hot") in found
    assert "profiles.good" not in {where for _, where in found}
    assert KEY not in repr(config.check())
    assert KEY not in repr(config)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no mode bits")
def test_check_warns_of_a_file_with_a_key_that_others_may_read(tmp_path: Path) -> None:
    path = write(tmp_path, f'[endpoints]\nkeyed = "llm://app:{KEY}@h.example/m"\n')
    path.chmod(0o644)
    assert str(path) in {finding.where for finding in Config.load(path).check()}
    path.chmod(0o600)
    assert str(path) not in {finding.where for finding in Config.load(path).check()}


def test_a_built_in_row_can_be_given_hosts_of_ones_own(tmp_path: Path) -> None:
    text = '[providers.azure-openai]\nhosts = ["mine.openai.azure.com"]\n'
    config = Config.load(write(tmp_path, text))
    row = config.providers.find("mine.openai.azure.com")
    assert row.name == "azure-openai"
    assert row.serves_exactly("mine.openai.azure.com")
    assert row.key_header == "api-key"
    assert "configuration file" in row.source


def test_a_row_says_no_and_open_ends_in_the_words_of_toml(tmp_path: Path) -> None:
    text = """
    [providers.mine]
    hosts = ["llm.mycorp.example"]
    params = { top_k = false, max_tokens = "max_completion_tokens" }
    ranges = { temp = [0, inf] }
    label_headers = [["", "X-Team"]]
    needs_key = true
    """
    row = Config.load(write(tmp_path, text)).providers.get("mine")
    assert dict(row.params) == {"top_k": None, "max_tokens": "max_completion_tokens"}
    assert row.ranges["temp"] == (0, None)
    assert row.find_label_header("blue") == "X-Team"
    assert row.needs_key


def test_a_configuration_shows_no_key_however_it_is_printed_or_copied(tmp_path: Path) -> None:
    config = Config.load(write(tmp_path, f'[endpoints]\na = "llm://app:{KEY}@h.example/m"\n'))
    assert config.endpoints["a"].endswith("@h.example/m")
    assert KEY in config.endpoints["a"]
    assert len(config.endpoints) == 1
    shown = [repr(config), str(config.endpoints), repr(copy.deepcopy(config.endpoints))]
    shown.append(repr(dataclasses.replace(config, path=None).endpoints))
    assert all(KEY not in text for text in shown)
    assert "llm://app:***@h.example/m" in shown[1]
    with pytest.raises(SecretError):
        pickle.dumps(config.endpoints)


def test_no_error_of_a_wrong_file_keeps_what_the_file_says(tmp_path: Path) -> None:
    for text in (f'[endpoints]\na = "llm://app:{KEY}@h/m"\nb = 1\n', f'a = "{KEY}\n'):
        with pytest.raises(ConfigError) as caught:
            Config.load(write(tmp_path, text))
        shown = traceback.TracebackException.from_exception(caught.value, capture_locals=False).format()
        assert KEY not in "".join(shown)
        assert caught.value.__context__ is None
        frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
        assert frames[-1] == "load"


def test_check_says_nothing_of_a_file_that_has_gone(tmp_path: Path) -> None:
    path = write(tmp_path, f'[endpoints]\na = "llm://app:{KEY}@h.example/m"\n')
    config = Config.load(path)
    path.unlink()
    assert {finding.where for finding in config.check()} == {"endpoints.a"}


def test_check_finds_nothing_to_say_of_what_is_right(tmp_path: Path) -> None:
    assert Config.empty().check() == ()
    text = '[endpoints]\na = "llm://openai/gpt-4.1#mine"\n[profiles.mine]\ntemp = 1\n'
    assert Config.load(write(tmp_path, text)).check() == ()


def test_check_says_that_an_endpoint_is_no_uri_and_goes_on(tmp_path: Path) -> None:
    text = '[endpoints]\na = "https://h.example/m"\nb = "llm://h.example/m?temp=x"\n'
    found = Config.load(write(tmp_path, text)).check()
    errors = {finding.where for finding in found if finding.severity == "error"}
    assert errors == {"endpoints.a", "endpoints.b"}
    assert "None" not in repr([finding.message for finding in found])


def test_an_error_without_a_line_of_its_own_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"providers\.x") as caught:
        Config.load(write(tmp_path, "providers = { x = { hosts = 1 } }"))
    assert f"{tmp_path / 'config.toml'}: providers.x" in str(caught.value)
