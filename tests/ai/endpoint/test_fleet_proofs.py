"""DPoP at an endpoint of several processes, which share a store of proofs and the secrets of their nonces."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import trustme

from ai_support import LOOPBACK, PATIENCE, key_store, serve_asgi
from oauth_support import HandIssuer, issuer_network, secure_issuer
from onym.ai.endpoint.context import AccessRequest, Caller
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.errors import AIIPError
from onym.net.messages import Headers
from onym.sign.dpop import DPoPKey, generate_dpop_key, sign_dpop_proof
from onym.sign.sealing import RELOAD_SECONDS, FleetSecrets, rotate_secrets
from onym.store import open_shared_store
from onym.store.valkey import ValkeyOptions, open_valkey
from onym.uri.secret import Secret
from postgres_support import Postgres, postgres_server
from support import untraced
from valkey_support import ValkeyServer, valkey_server

NAME = "bank.test"
RESOURCE = f"https://{NAME}/.well-known/aiip/v1"
PATH = f"/.well-known/aiip/v1/{NAME}/open"
URL = f"https://{NAME}{PATH}"
#: copies of one proof; ONYM_REPLAYS=100000 is the number of the acceptance
REPLAYS = int(os.environ.get("ONYM_REPLAYS", "10000"))
PATIENT = ValkeyOptions(timeout=60.0)
#: requests that are sent one behind the other; a server reads at most 128 KiB of heads at once
_BATCH = 50
#: the app that each process serves; its issuer is at localhost
APP = """
from onym.ai.endpoint import Endpoint
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.net.config import NetConfig
from onym.net.policy import Policy
from onym.net import TLSConfig

network = NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("authority.pem",)))
guard = JWTAuthorization("https://localhost:{port}", "{resource}", network=network, dpop="required")
app = Endpoint("{name}", keys="keys", authorization=guard)


@app.resource("/open")
async def opened() -> str:
    return "done"
"""


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with valkey_server() as running:
        yield running


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as running:
        yield running


def valkey_url(server: ValkeyServer) -> str:
    return f"unix://:{server.password}@{server.socket}"


# two processes from the command line


class Process:
    """An endpoint that `onym ai serve` runs in a process of its own."""

    def __init__(self, folder: Path, store: str) -> None:
        command = [sys.executable, "-m", "onym", "ai", "serve", "bank:app", "--port", "0", "--json"]
        self._child = subprocess.Popen(
            [*command, "--secrets", "secrets"],
            cwd=folder,
            env=untraced({**os.environ, "ONYM_AI_PROOF_STORE": store}),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def wait(self) -> int:
        """The port, once it listens."""
        assert self._child.stdout is not None
        return int(json.loads(self._child.stdout.readline())["address"].rpartition(":")[2])

    def close(self) -> None:
        self._child.terminate()
        self._child.communicate(timeout=PATIENCE)


def write_request(token: str, proof: str) -> bytes:
    head = [
        f"POST {PATH} HTTP/1.1", f"Host: {NAME}", "Content-Length: 0", f"Authorization: DPoP {token}",
        f"DPoP: {proof}",
    ]  # fmt: skip
    return ("\r\n".join(head) + "\r\n\r\n").encode()


def send_many(port: int, request: bytes, count: int) -> tuple[Counter[int], bytes]:
    """Send copies of a request over one connection, `_BATCH` at a time; the statuses and the last answers."""
    statuses = Counter[int]()
    with closing(socket.create_connection((LOOPBACK, port), PATIENCE)) as sock:
        for begin in range(0, count, _BATCH):
            size, answers = min(_BATCH, count - begin), b""
            sock.sendall(request * size)
            while answers.count(b"HTTP/1.1 ") < size or not _is_complete(answers):
                piece = sock.recv(1 << 20)
                assert piece, "the server closed the connection"
                answers += piece
            statuses.update(int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", answers))
    return statuses, answers


def _is_complete(answers: bytes) -> bool:
    """Whether the last answer has all of its body."""
    head, _, body = answers[answers.rfind(b"HTTP/1.1 ") :].partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return length is not None and len(body) >= int(length[1])


@pytest.mark.parametrize(("kind", "copies"), [("valkey", REPLAYS), ("sqlite", REPLAYS // 10)])
def test_attack_65_of_10_000_copies_at_two_processes_one_is_accepted(
    tmp_path: Path, ca: trustme.CA, request: pytest.FixtureRequest, kind: str, copies: int
) -> None:
    store = str(tmp_path / "proofs.sqlite")
    if kind == "valkey":
        store = valkey_url(request.getfixturevalue("valkey"))
    server, key = HandIssuer(origin="https://localhost"), generate_dpop_key()
    ca.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    key_store(tmp_path)
    rotate_secrets(tmp_path / "secrets")
    with ExitStack() as stack:
        server.port = stack.enter_context(serve_asgi(server, "localhost", ca=ca))
        (tmp_path / "bank.py").write_text(APP.format(port=server.port, resource=RESOURCE, name=NAME))
        fleet = [stack.enter_context(closing(Process(tmp_path, store))) for _ in range(2)]
        ports = [process.wait() for process in fleet]
        token = server.token(aud=RESOURCE, cnf={"jkt": key.thumbprint})
        # the nonce of one process is good at the other
        proof = make_proof(key, token, fetch_nonce(ports[0], key, token))
        lines = [ports[number % 2] for number in range(10)]
        with ThreadPoolExecutor(len(lines)) as threads:
            found = threads.map(
                lambda port: send_many(port, write_request(token, proof), copies // len(lines))[0], lines
            )
            total = sum(found, Counter[int]())
        assert total == {200: 1, 401: copies - 1}
        # and each of them takes a proof that nobody has seen; the first nonce may be too old by now
        nonce = fetch_nonce(ports[0], key, token)
        for port in ports:
            counts, _ = send_many(port, write_request(token, make_proof(key, token, nonce)), 1)
            assert counts == {200: 1}


def fetch_nonce(port: int, key: DPoPKey, token: str) -> str:
    counts, told = send_many(port, write_request(token, make_proof(key, token, None)), 1)
    nonce = re.search(rb"dpop-nonce: (\S+)", told)
    assert counts == {401: 1}
    assert nonce is not None
    return nonce[1].decode()


def make_proof(key: DPoPKey, token: str, nonce: str | None) -> str:
    return sign_dpop_proof(key, method="POST", url=URL, at=time.time(), access_token=token, nonce=nonce)


# two guards in this process


@pytest.fixture(params=["sqlite", "postgresql", "valkey"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """The URL of an empty store, and what empties it."""
    if request.param == "sqlite":
        folder = tmp_path / "store"
        folder.mkdir()

        def remove() -> None:
            for file in folder.iterdir():
                file.unlink()

        yield str(folder / "shared.sqlite"), remove
    elif request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        with server.database() as name:

            def drop() -> None:
                server.execute("DELETE FROM onym_shared_marks", name)
                server.execute("UPDATE onym_shared_facts SET value = md5(value) WHERE name = 'epoch'", name)

            yield server.url(name), drop
    else:
        url = valkey_url(request.getfixturevalue("valkey"))
        with open_valkey(Secret(url), PATIENT) as client:
            client.flushall()
            yield url, client.flushall


class Fleet:
    """Two guards of one resource, each with its own connection to the store and reading of the secrets.

    Their time stands still unless a test moves it, because each minute has its own nonce.
    """

    def __init__(
        self,
        folder: Path,
        ca: trustme.CA,
        server: HandIssuer,
        url: str,
        clock: Callable[[], float] | None = None,
    ) -> None:
        begin = time.time()
        self.key, self._clock = generate_dpop_key(), clock or (lambda: begin)
        self.token = server.token(aud=RESOURCE, cnf={"jkt": self.key.thumbprint})
        self._stores = [open_shared_store(Secret(url), valkey=PATIENT) for _ in range(2)]
        self.guards: list[JWTAuthorization] = []
        for store in self._stores:
            guard = JWTAuthorization(
                server.issuer, RESOURCE, network=issuer_network(server, ca, folder), clock=self._clock
            )
            guard.share_proofs(store, FleetSecrets(folder / "secrets", clock=self._clock))
            self.guards.append(guard)

    async def __aenter__(self) -> Fleet:
        return self

    async def __aexit__(self, *_: object) -> None:
        for part in (*self.guards, *self._stores):
            await part.close()

    def proof(self, nonce: str | None) -> str:
        return sign_dpop_proof(
            self.key, method="POST", url=URL, at=self._clock(), access_token=self.token, nonce=nonce
        )

    async def ask(self, number: int, proof: str) -> Caller:
        fields = Headers([("Authorization", f"DPoP {self.token}"), ("DPoP", proof)])
        return await self.guards[number].authorize(AccessRequest(method="POST", url=URL, headers=fields))

    async def refuse(self, number: int, proof: str, reason: str) -> str | None:
        """The nonce that comes with a refusal for this reason."""
        with pytest.raises(AIIPError) as caught:
            await self.ask(number, proof)
        assert (caught.value.code, caught.value.refused_proof) == ("aiip.sender-constraint", reason)
        return caught.value.dpop_nonce


@contextmanager
def fleet_parts(folder: Path, ca: trustme.CA) -> Iterator[HandIssuer]:
    rotate_secrets(folder / "secrets")
    with secure_issuer(ca) as server:
        yield server


def test_processes_share_nonces_and_refuse_each_others_proofs(
    tmp_path: Path, ca: trustme.CA, shared: tuple[str, Callable[[], None]]
) -> None:
    async def work(server: HandIssuer) -> None:
        async with Fleet(tmp_path, ca, server, shared[0]) as fleet:
            nonce = await fleet.refuse(0, fleet.proof(None), "nonce")
            proof = fleet.proof(nonce)
            assert (await fleet.ask(1, proof)).key == fleet.key.thumbprint
            for number in (0, 1):
                await fleet.refuse(number, proof, "replayed")
            copies = [
                fleet.ask(number % 2, fleet_proof)
                for fleet_proof in [fleet.proof(nonce)]
                for number in range(40)
            ]
            ends = await asyncio.gather(*copies, return_exceptions=True)
            assert [isinstance(end, Caller) for end in ends].count(True) == 1
            assert {end.refused_proof for end in ends if isinstance(end, AIIPError)} == {"replayed"}

    with fleet_parts(tmp_path, ca) as server:
        asyncio.run(work(server))


def test_a_store_that_came_back_empty_makes_older_proofs_stale(
    tmp_path: Path, ca: trustme.CA, shared: tuple[str, Callable[[], None]]
) -> None:
    url, empty = shared

    async def work(server: HandIssuer) -> None:
        async with Fleet(tmp_path, ca, server, url) as fleet:
            old = await fleet.refuse(0, fleet.proof(None), "nonce")
            used, unused = fleet.proof(old), fleet.proof(old)
            for number in (0, 1):
                await fleet.ask(number, fleet.proof(old))
            await fleet.ask(0, used)
            await asyncio.to_thread(empty)
            # many at once: the first of them must not open the door for the others
            copies = [fleet.ask(number % 2, proof) for number in range(20) for proof in (used, unused)]
            ends = await asyncio.gather(*copies, return_exceptions=True)
            assert {getattr(end, "refused_proof", None) for end in ends} == {"nonce"}
            news = {await fleet.refuse(number, used, "nonce") for number in (0, 1)}
            assert len(news) == 1
            (new,) = news
            assert new != old
            proof = fleet.proof(new)
            await fleet.ask(0, proof)
            await fleet.refuse(1, proof, "replayed")

    with fleet_parts(tmp_path, ca) as server:
        asyncio.run(work(server))


def test_a_rotated_secret_costs_no_proof_and_a_revoked_one_all_of_them(
    tmp_path: Path, ca: trustme.CA
) -> None:
    # all of it is in one minute: a secret counts from when it was read, and not from the next minute
    begin, ahead = (time.time() // 60 + 1) * 60, 0.0

    def clock() -> float:
        return begin + ahead

    async def work(server: HandIssuer) -> None:
        nonlocal ahead
        async with Fleet(tmp_path, ca, server, str(tmp_path / "shared.sqlite"), clock) as fleet:
            nonce = await fleet.refuse(0, fleet.proof(None), "nonce")
            rotate_secrets(tmp_path / "secrets", clock=clock)
            ahead += RELOAD_SECONDS
            for number in (0, 1):
                await fleet.ask(number, fleet.proof(nonce))
            rotate_secrets(tmp_path / "secrets", revoke=True, clock=clock)
            # in the past, which makes a process read again as well
            ahead -= RELOAD_SECONDS
            news = {await fleet.refuse(number, fleet.proof(nonce), "nonce") for number in (0, 1)}
            assert len(news) == 1
            await fleet.ask(0, fleet.proof(news.pop()))

    with fleet_parts(tmp_path, ca) as server:
        asyncio.run(work(server))


def test_a_store_that_cannot_be_reached_is_503_and_nobody_is_let_in(tmp_path: Path, ca: trustme.CA) -> None:
    async def work(server: HandIssuer) -> None:
        async with Fleet(tmp_path, ca, server, "valkey://user:hunter2@127.0.0.1:1/0") as fleet:
            with pytest.raises(AIIPError) as caught:
                await fleet.ask(0, fleet.proof("A" * 22))
            assert (caught.value.code, caught.value.status) == ("aiip.unavailable", 503)
            assert "hunter2" not in str(caught.value)

    with fleet_parts(tmp_path, ca) as server:
        asyncio.run(work(server))
