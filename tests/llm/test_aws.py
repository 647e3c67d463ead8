"""AWS credentials and signatures: botocore's own signer and sessions are the judge."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onym.errors import CredentialError, UnsupportedError
from onym.llm import credentials as clouds
from onym.llm.credentials import Credential
from onym.uri.secret import Secret

auth = pytest.importorskip("botocore.auth")
from botocore.awsrequest import AWSRequest  # noqa: E402
from botocore.credentials import Credentials  # noqa: E402

ACCESS, SECRET, TOKEN = "AKIDEXAMPLE0000", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session/token=="
KEY = Credential(secret=Secret(SECRET), source="test", access_id=ACCESS)
LENT = Credential(secret=Secret(SECRET), source="test", access_id=ACCESS, session=Secret(TOKEN))
NOW = 1_795_289_736.0
HOST = "https://bedrock-runtime.us-east-1.amazonaws.com"


def revealed(headers: Any) -> dict[str, str]:
    return {name.lower(): value.reveal() if isinstance(value, Secret) else value for name, value in headers}


def signed(**how: Any) -> tuple[tuple[str, str | Secret], ...]:
    given = {
        "method": "POST",
        "url": f"{HOST}/model/m/converse",
        "headers": (("Accept", "application/json"), ("Content-Type", "application/json")),
        "body": b"{}",
        "credential": KEY,
        "region": "us-east-1",
        "now": NOW,
    }
    return clouds.sign_request(**{**given, **how})


def by_botocore(
    monkeypatch: pytest.MonkeyPatch,
    *,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    token: str | None,
    service: str = "bedrock",
) -> dict[str, str]:
    moment = datetime.fromtimestamp(NOW, UTC)
    monkeypatch.setattr(auth, "get_current_datetime", lambda *_: moment)
    request = AWSRequest(method=method, url=url, headers=dict(headers), data=body)
    auth.SigV4Auth(Credentials(ACCESS, SECRET, token), service, "us-east-1").add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


TARGETS = {
    "a plain path": "/model/m/converse",
    "a colon": "/model/anthropic.claude-3-haiku-20240307-v1%3A0/converse",
    "a raw colon": "/model/anthropic.claude-v1:0/converse",
    "an ARN": "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fus.x.y%3A0/invoke",
    "a query": "/foundation-models?byProvider=Amazon&byOutputModality=TEXT",
    "a tilde and non-ASCII": "/model/~a%C3%A9/converse",
}


@pytest.mark.parametrize("credential", [KEY, LENT], ids=["lasting", "lent"])
@pytest.mark.parametrize("body", [b"", b'{"messages":[]}'], ids=["empty", "body"])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_a_request_is_signed_as_botocore_signs_it(
    monkeypatch: pytest.MonkeyPatch, target: str, body: bytes, credential: Credential
) -> None:
    for origin in (HOST, "http://127.0.0.1:8123"):
        method, url = ("POST", origin + target) if body else ("GET", origin + target)
        theirs = by_botocore(
            monkeypatch,
            method=method,
            url=url,
            headers={"Content-Type": "application/json"},
            body=body,
            token=credential.session and credential.session.reveal(),
        )
        ours = revealed(signed(method=method, url=url, body=body, credential=credential))
        assert ours.pop("accept") == "application/json"
        assert ours == theirs


def test_secrets_stay_secrets_and_old_signatures_go() -> None:
    old = (("authorization", "Bearer x"), ("X-AMZ-DATE", "y"), ("x-amz-security-token", "z"), ("X-A", "kept"))
    headers = signed(headers=old, credential=LENT)
    assert [name for name, _ in headers] == ["X-A", "X-Amz-Date", "X-Amz-Security-Token", "Authorization"]
    assert [type(value) for _, value in headers] == [str, str, Secret, Secret]
    assert revealed(headers)["x-amz-date"] == "20261121T193536Z"
    assert "SignedHeaders=host;x-amz-date;x-amz-security-token," in revealed(headers)["authorization"]


def test_a_secret_header_that_is_covered_is_covered_by_what_it_holds() -> None:
    plain = signed(headers=(("X-Amz-Thing", "v"),))
    secret = signed(headers=(("X-Amz-Thing", Secret("v")),))
    assert revealed(plain) == revealed(secret)
    assert "host;x-amz-date;x-amz-thing," in revealed(secret)["authorization"]


def test_the_clock_is_asked_where_no_time_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert revealed(signed(now=None))["x-amz-date"][:2] == "20"
    assert revealed(signed(service="sts"))["authorization"] != revealed(signed())["authorization"]


def test_nothing_of_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        signed(credential=LENT)
    assert TOKEN not in caplog.text
    assert "botocore.auth" not in {record.name for record in caplog.records}


def test_a_key_without_its_id_cannot_sign() -> None:
    with pytest.raises(CredentialError) as caught:
        signed(credential=Credential(secret=Secret(SECRET), source="userinfo"))
    assert caught.value.code == "credential.bad-key"
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("bedrock-runtime.us-east-1.amazonaws.com", "us-east-1"),
        ("Bedrock-Runtime.EU-Central-1.amazonaws.com", "eu-central-1"),
        ("bedrock.us-west-2.amazonaws.com", "us-west-2"),
        ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("bedrock-runtime.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("bedrock-runtime.ap-southeast-2.api.aws", "ap-southeast-2"),
        ("vpce-0a-b.bedrock-runtime.us-east-1.vpce.amazonaws.com", "us-east-1"),
    ],
)
def test_the_region_is_read_from_the_host(host: str, region: str) -> None:
    assert clouds.parse_region(host) == region


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "bedrock-runtime.amazonaws.com",
        "bedrock-runtime.us-east-1.amazonaws.com.evil.example",
        "bedrock-runtime.us-east-1.example.com",
        "evilbedrock-runtime.us-east-1.amazonaws.com",
        "s3.us-east-1.amazonaws.com",
    ],
)
def test_a_host_that_is_not_of_bedrock_has_no_region(host: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        clouds.parse_region(host)
    assert caught.value.code == "credential.no-region"


# where credentials come from


PAIR = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Variables that point at a person's own files; botocore sees no other."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", *PAIR):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    credentials, config = tmp_path / "credentials", tmp_path / "config"
    credentials.write_text(
        f"[work]\naws_access_key_id={ACCESS}\naws_secret_access_key={SECRET}\naws_session_token={TOKEN}\n"
        f"[plain]\naws_access_key_id={ACCESS}\naws_secret_access_key={SECRET}\n"
    )
    config.write_text("[profile empty]\nregion=us-east-1\n")
    return {"AWS_SHARED_CREDENTIALS_FILE": str(credentials), "AWS_CONFIG_FILE": str(config)}


def parts(found: Credential | None) -> tuple[str | None, str, str | None, str] | None:
    if found is None:
        return None
    session = found.session and found.session.reveal()
    return found.access_id, found.secret.reveal(), session, found.source


def test_variables_come_first() -> None:
    source = "env:AWS_SECRET_ACCESS_KEY"
    assert parts(clouds.find_aws({**PAIR, "AWS_PROFILE": "work"}, "")) == (
        ACCESS,
        SECRET,
        None,
        source,
    )
    assert parts(clouds.find_aws({**PAIR, "AWS_SESSION_TOKEN": TOKEN})) == (
        ACCESS,
        SECRET,
        TOKEN,
        source,
    )


@pytest.mark.parametrize("name", PAIR)
def test_half_of_a_pair_is_an_error_that_names_the_other_half(name: str) -> None:
    with pytest.raises(CredentialError) as caught:
        clouds.find_aws({name: PAIR[name]})
    assert caught.value.code == "credential.missing"
    (other,) = set(PAIR) - {name}
    assert other in str(caught.value)
    assert PAIR[name] not in str(caught.value)


def test_where_no_variable_speaks_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clouds, "_import_botocore", None)
    assert clouds.find_aws({}) is None
    assert clouds.find_aws({"AWS_PROFILE": " ", "AWS_ACCESS_KEY_ID": ""}, "") is None


def test_a_profile_is_read_by_botocore(files: dict[str, str]) -> None:
    found = clouds.find_aws(files, "work")
    assert parts(found) == (ACCESS, SECRET, TOKEN, "aws:work")
    assert found is not None
    assert (found.expires, found.renew) == (None, None)
    assert parts(clouds.find_aws({**files, **PAIR}, "plain")) == (
        ACCESS,
        SECRET,
        None,
        "aws:plain",
    )
    assert parts(clouds.find_aws({**files, "AWS_PROFILE": "plain"})) == (
        ACCESS,
        SECRET,
        None,
        "aws:plain",
    )


def test_botocore_knows_the_usual_places_itself(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, path in files.items():
        monkeypatch.setenv(name, path)
    assert parts(clouds.find_aws({}, "plain")) == (ACCESS, SECRET, None, "aws:plain")


@pytest.mark.parametrize("profile", ["nobody", "empty", "default"])
def test_a_profile_without_a_credential_is_an_error(files: dict[str, str], profile: str) -> None:
    with pytest.raises(CredentialError) as caught:
        clouds.find_aws(files, profile)
    assert f"aws:{profile}" in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_a_profile_of_that_name_goes_before_botocores_own_chain(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(files["AWS_SHARED_CREDENTIALS_FILE"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "FROMCHAIN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "chained")
    assert parts(clouds.find_aws(files, "default")) == (
        "FROMCHAIN",
        "chained",
        None,
        "aws:default",
    )
    path.write_text(path.read_text().replace("[plain]", "[default]"))
    assert parts(clouds.find_aws(files, "default")) == (ACCESS, SECRET, None, "aws:default")


@pytest.mark.parametrize("expires", [None, 2.0], ids=["lasting", "ending"])
def test_a_credential_that_ends_is_renewed_by_who_gave_it(
    files: dict[str, str], tmp_path: Path, expires: float | None
) -> None:
    """A profile that runs a process: each run gives the next secret."""
    until = "" if expires is None else (datetime.now(UTC) + timedelta(minutes=expires)).isoformat()
    script = tmp_path / "give.py"
    script.write_text(
        "import json, pathlib\n"
        f"log = pathlib.Path({str(tmp_path / 'runs')!r})\n"
        "runs = log.read_text() + 'x' if log.exists() else 'x'\n"
        "log.write_text(runs)\n"
        f"found = {{'Version': 1, 'AccessKeyId': {ACCESS!r}, 'SecretAccessKey': 's%d' % len(runs)}}\n"
        f"found |= {{'SessionToken': 't', 'Expiration': {until!r}}} if {until!r} else {{}}\n"
        "print(json.dumps(found))\n"
    )
    Path(files["AWS_CONFIG_FILE"]).write_text(
        f"[profile run]\ncredential_process={sys.executable} {script}\n"
    )
    found = clouds.find_aws(files, "run")
    assert found is not None
    if expires is None:
        assert (found.expires, found.renew) == (None, None)
        return
    assert found.expires == pytest.approx(datetime.fromisoformat(until).timestamp())
    assert found.renew is not None
    following = found.renew()
    assert following.access_id == ACCESS
    # two minutes are too few for botocore: it asks again
    assert following.secret != found.secret
    assert following.source == "aws:run"


def test_what_a_failing_profile_says_is_not_repeated(files: dict[str, str]) -> None:
    Path(files["AWS_CONFIG_FILE"]).write_text(
        f"[profile run]\ncredential_process={sys.executable} -c \"raise SystemExit('the-secret-value')\"\n"
    )
    with pytest.raises(CredentialError) as caught:
        clouds.find_aws(files, "run")
    assert caught.value.code == "credential.aws"
    assert "the-secret-value" not in str(caught.value)


def test_a_pods_role_is_asked_for_where_the_pod_says_so(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(clouds, "_load_profile", lambda profile, _: asked.append(profile))
    for name in ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        clouds.find_aws({name: "x"})
    clouds.find_aws({"AWS_WEB_IDENTITY_TOKEN_FILE": "x", "AWS_PROFILE": "work"})
    assert asked == ["default", "default", "work"]


@pytest.mark.parametrize(
    "call", [lambda: signed(), lambda: clouds.find_aws({}, "work")], ids=["sign", "find"]
)
def test_without_the_extra_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, call: Any) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "botocore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(CredentialError) as caught:
        call()
    assert caught.value.code == "credential.needs-extra"
    assert "pip install 'onym[bedrock]'" in (caught.value.hint or "")
    assert caught.value.__context__ is None
