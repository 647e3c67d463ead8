"""Which key goes with a URI, and which never does (draft 4.2.1, 10.1; docs: Credentials)."""

from __future__ import annotations

import os
import traceback
from importlib.metadata import EntryPoint
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

from onym.errors import CredentialError, PolicyError
from onym.llm import credentials
from onym.llm.credentials import Credential, resolve_credential
from onym.llm.providers import Provider, ProviderTable
from onym.net.policy import Policy
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret

KEY = "sk-test-0123456789abcdefghijklmnop"
OTHER = "sk-other-0123456789abcdefghijklmn"


def find(text: str, *, policy: Policy | None = None, **environ: str) -> Credential | None:
    """The credential for this URI, as a client would look it up."""
    uri = LLMURI.parse(text)
    table = ProviderTable.builtin()
    provider = (table.find_alias(uri.host) if uri.port is None else None) or table.find(uri.host, uri.port)
    return resolve_credential(uri, provider, policy or Policy.trusted(), environ)


def key_of(text: str, **environ: str) -> tuple[str, str]:
    found = find(text, **environ)
    assert found is not None
    return found.secret.reveal(), found.source


def test_a_key_in_the_userinfo_goes_before_all_others() -> None:
    text = f"llm://app:{KEY}@api.openai.com/gpt-5.4?auth=env:MINE"
    assert key_of(text, MINE=OTHER, OPENAI_API_KEY=OTHER) == (KEY, "userinfo")


def test_an_auth_reference_goes_before_the_conventional_variable() -> None:
    text = "llm://api.openai.com/gpt-5.4?auth=env:MINE"
    assert key_of(text, MINE=KEY, OPENAI_API_KEY=OTHER) == (KEY, "env:MINE")


@pytest.mark.requirement("llm-10.1-c")
def test_the_conventional_variable_serves_the_providers_own_host_and_its_alias() -> None:
    assert key_of("llm://api.openai.com/gpt-5.4", OPENAI_API_KEY=KEY) == (KEY, "env:OPENAI_API_KEY")
    assert key_of("llm://openai/gpt-5.4", OPENAI_API_KEY=KEY) == (KEY, "env:OPENAI_API_KEY")
    assert key_of("llm://api.openai.com:443/gpt-5.4", OPENAI_API_KEY=KEY)[0] == KEY


@pytest.mark.parametrize(
    "text",
    [
        "llm://api.openai.com.evil.example/gpt-5.4",
        "llm://evil.example/api.openai.com",
        "llm://openai:8443/gpt-5.4",
        "llm://api.openai.com:8443/gpt-5.4",
        "llm://xapi.openai.com/gpt-5.4",
        "llm://93.184.216.34/gpt-5.4",
        "llm://localhost:11434/gpt-5.4",
        "llm://api.groq.com/openai",
    ],
)
def test_the_conventional_variable_goes_to_no_other_host(text: str) -> None:
    try:
        found = find(text, OPENAI_API_KEY=KEY)
    except CredentialError as error:
        assert KEY not in str(error)  # noqa: PT017 - either way the key stays where it is
    else:
        assert found is None


def test_a_resource_host_gets_the_key_only_when_the_persons_own_variable_spells_it_out() -> None:
    text = "llm://mine.openai.azure.com/gpt-5.4"
    spelled = {"AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/"}
    assert key_of(text, **spelled) == (KEY, "env:AZURE_OPENAI_API_KEY")
    for endpoint in ("https://other.openai.azure.com/", "http://mine.openai.azure.com/", "not a URI", ""):
        with pytest.raises(CredentialError) as caught:
            find(text, AZURE_OPENAI_API_KEY=KEY, AZURE_OPENAI_ENDPOINT=endpoint)
        assert caught.value.code == "credential.not-bound"


def test_a_missing_key_names_the_variable_and_the_host() -> None:
    with pytest.raises(CredentialError) as caught:
        find("llm://api.groq.com/llama")
    assert "GROQ_API_KEY" in str(caught.value)
    assert "api.groq.com" in str(caught.value)
    assert caught.value.code == "credential.missing"


def test_a_server_that_needs_no_key_gets_none() -> None:
    assert find("llm://localhost:11434/llama3") is None
    assert find("llm://models.example/llama3", OPENAI_API_KEY=KEY) is None


def test_an_untrusted_policy_takes_no_key_of_this_machine() -> None:
    policy = Policy.untrusted()
    with pytest.raises(CredentialError) as missing:
        find("llm://api.openai.com/gpt-5.4", policy=policy, OPENAI_API_KEY=KEY)
    assert missing.value.code == "credential.missing"
    with pytest.raises(PolicyError) as caught:
        find("llm://models.example/m?auth=env:MINE", policy=policy, MINE=KEY)
    assert caught.value.reason == "auth"
    assert find(f"llm://a:{KEY}@models.example/m", policy=policy) is not None


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(CredentialError, match="MINE"):
        find("llm://models.example/m?auth=env:MINE")


def test_a_key_file_is_read_without_its_line_end(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(KEY + "\r\n", encoding="utf-8")
    assert key_of(f"llm://models.example/m?auth=file:{path}") == (KEY, f"file:{path}")


@pytest.mark.parametrize("octets", [b"\xff\xfe", b"x" * 70_000, None])
def test_a_file_that_holds_no_key_is_refused(tmp_path: Path, octets: bytes | None) -> None:
    path = tmp_path / "key"
    if octets is not None:
        path.write_bytes(octets)
    with pytest.raises(CredentialError) as caught:
        find(f"llm://models.example/m?auth=file:{path}")
    assert caught.value.code == "credential.unreadable"


@pytest.mark.parametrize("text", ["two\nlines", "a b", "caf\u00e9", "nul\0", "\u200bsk"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CredentialError) as caught:
        find(f"llm://models.example/m?auth=file:{path}")
    assert caught.value.code == "credential.bad-key"
    assert text not in str(caught.value)


def test_an_empty_key_file_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("\n", encoding="utf-8")
    with pytest.raises(CredentialError) as caught:
        find(f"llm://models.example/m?auth=file:{tmp_path / 'key'}")
    assert caught.value.code == "credential.empty"


class Drawer(KeyringBackend):
    """A keyring of the test's own."""

    priority = 1  # type: ignore[assignment]

    def __init__(self, content: dict[tuple[str, str], str], *, locked: bool = False) -> None:
        self.content = content
        self.locked = locked

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise KeyringLocked(KEY)
        return self.content.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.content[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.content[service, username]


@pytest.fixture
def drawer(monkeypatch: pytest.MonkeyPatch) -> Drawer:
    made = Drawer({("openai", "me"): KEY})
    monkeypatch.setattr(keyring, "get_password", made.get_password)
    return made


def test_a_key_comes_from_the_keyring(drawer: Drawer) -> None:
    assert key_of("llm://models.example/m?auth=keyring:openai/me") == (KEY, "keyring:openai/me")


def test_a_keyring_without_the_key_says_how_to_put_it_there(drawer: Drawer) -> None:
    with pytest.raises(CredentialError) as caught:
        find("llm://models.example/m?auth=keyring:openai/you")
    assert caught.value.code == "credential.missing"
    assert "keyring set openai you" in (caught.value.hint or "")


def test_a_locked_keyring_is_an_error_that_shows_nothing(drawer: Drawer) -> None:
    drawer.locked = True
    with pytest.raises(CredentialError) as caught:
        find("llm://models.example/m?auth=keyring:openai/me")
    assert caught.value.code == "credential.keyring"
    assert KEY not in str(caught.value)


def give(reference: str) -> Secret:
    return Secret(f"{KEY}-{reference}")


def give_text(reference: str) -> str:
    return KEY


def fail(reference: str) -> str:
    raise RuntimeError(KEY)


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint(name=kind, value=f"{__name__}:{value}", group=credentials.GROUP)
        for kind, value in (("store", "give"), ("texts", "give_text"), ("broken", "fail"))
    ]
    loaded = {"store": give, "texts": give_text, "broken": fail}
    monkeypatch.setattr(EntryPoint, "load", lambda self: loaded[self.name])
    monkeypatch.setattr(credentials, "_list_plugins", lambda: points)


def test_a_distribution_can_bring_a_kind_of_store(plugins: None) -> None:
    assert key_of("llm://models.example/m?auth=store:a/b")[0] == f"{KEY}-a/b"
    assert key_of("llm://models.example/m?auth=texts:x") == (KEY, "texts:x")


def test_a_failing_store_does_not_tell_what_it_said(plugins: None) -> None:
    with pytest.raises(CredentialError) as caught:
        find("llm://models.example/m?auth=broken:x")
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_store_that_is_not_installed_is_named_with_those_that_are(plugins: None) -> None:
    with pytest.raises(CredentialError) as caught:
        find("llm://models.example/m?auth=pass:openai")
    assert caught.value.code == "credential.unknown-kind"
    assert "aws, broken, env, file, google, keyring, store, texts" in str(caught.value.hint)


def test_without_plugins_the_three_kinds_are_known() -> None:
    with pytest.raises(CredentialError) as caught:
        find("llm://models.example/m?auth=pass:openai")
    assert caught.value.code == "credential.unknown-kind"
    assert "aws, env, file, google, keyring" in (caught.value.hint or "")


@pytest.mark.requirement("llm-10.1-c")
def test_a_vault_says_what_it_wants_installed() -> None:
    with pytest.raises(CredentialError) as caught:
        find("llm://models.example/m?auth=vault:secret/path%23key")
    assert caught.value.code == "credential.needs-extra"
    assert "vault" in (caught.value.hint or "")


def test_no_error_keeps_the_frames_or_the_cause_that_held_a_key(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(KEY.encode() + b"\xff")
    with pytest.raises(CredentialError) as caught:
        find(f"llm://models.example/m?auth=file:{path}")
    text = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert KEY not in text
    assert caught.value.__context__ is None


def test_a_key_pasted_as_the_name_of_a_variable_is_not_shown() -> None:
    with pytest.raises(CredentialError) as caught:
        find("llm://models.example/m?auth=env:ghp_0123456789abcdefghijABCDEFGHIJ012345")
    assert "ghp_0123" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_in_the_place_of_a_key_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CredentialError) as caught:
        find(f"llm://models.example/m?auth=file:{tmp_path / 'pipe'}")
    assert caught.value.code == "credential.unreadable"
    assert str(tmp_path / "pipe") in caught.value.message


def test_a_variable_is_taken_without_the_blanks_around_it() -> None:
    assert key_of("llm://api.openai.com/gpt-5.4", OPENAI_API_KEY=f" {KEY}\n")[0] == KEY
    assert key_of("llm://models.example/m?auth=env:MINE", MINE=f"{KEY}\n")[0] == KEY


@pytest.mark.parametrize(
    "endpoint", ["http://mine.openai.azure.com", "https://mine.openai.azure.com:8443", "not a uri", ""]
)
def test_a_variable_that_spells_out_another_endpoint_binds_nothing(endpoint: str) -> None:
    with pytest.raises(CredentialError) as caught:
        find(
            "llm://mine.openai.azure.com/gpt",
            AZURE_OPENAI_API_KEY=KEY,
            AZURE_OPENAI_ENDPOINT=endpoint,
        )
    assert caught.value.code == "credential.not-bound"


def test_a_digest_names_a_key_and_tells_nothing_of_it() -> None:
    one, same, other = (Credential(secret=Secret(key), source="env:A") for key in (KEY, KEY, OTHER))
    assert one.digest == same.digest != other.digest
    assert KEY not in one.digest
    assert KEY not in repr(one)


def test_a_row_that_has_no_hosts_binds_no_variable() -> None:
    row = Provider(
        name="anywhere",
        title="Anywhere",
        key_variables=("ANY_KEY",),
        docs="",
        source="",
        checked="2026-01-01",
    )
    with pytest.raises(CredentialError):
        resolve_credential(LLMURI.parse("llm://anywhere/m"), row, Policy.trusted(), {"ANY_KEY": KEY})
