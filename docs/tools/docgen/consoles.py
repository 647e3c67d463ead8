"""The console blocks of the documentation: their commands are run, and what they print is filled in.

A block is one shell session. Lines that begin with `$ ` are commands, `> ` continues one. Commands that
would reach a server on this machine reach the provider of the tests instead; the page keeps its own port.

The last command of a `serve` block is a server, which runs until the page ends: on a free port in the place
of the page's own, everywhere on the page.
"""

from __future__ import annotations

import random
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from docgen.examples import clean_environment
from onym.testing.fake_provider import FakeProvider

__all__ = ["Stage", "commands", "port_of", "stage"]

_MARK = "\x1e"
#: begins the output of a command, and leaves $? as it is
_MARKED = r"{ left=$?; printf '\036'; (exit $left); }"
_LOCAL = re.compile(r"(?<![.\w-])(localhost|127\.0\.0\.1):(\d+)")
_CALLS = re.compile(r"\bonym (?:batch|chat|embed|models|ping)\b")
_PORT = re.compile(r"(?:--port |port=)(\d+)")
#: durations, times, names of keys, ids of receipts and tasks: other ones each time
_VARIES = re.compile(
    r"\b\d+(?:\.\d+)? ?m?s\b|\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)"
    r"|(?<![\w-])[\w-]{32}(?![\w-])|(?<![\w-])[\w-]{43}(?![\w-])|(?<=receipt )[\w-]{22}(?![\w-])"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
)
#: seconds for a server to listen
_PATIENCE = 60


class Stage:
    """One page's shell: a home of its own, an empty environment, a provider on loopback.

    `servers` ends what the page serves; `ports` are the page's ports and the real ones.
    """

    def __init__(
        self, home: Path, fake: FakeProvider, servers: ExitStack, ports: Mapping[str, str] | None = None
    ) -> None:
        self.home = home
        self._fake = fake
        self._servers = servers
        self.ports = ports or {}
        self._port = "11434"

    def write(self, name: str, body: str) -> None:
        """Put a file of the page into the home."""
        (self.home / name).write_text(_swapped(self._led_here(body), self.ports), encoding="utf-8")

    def run(self, body: str, answers: list[str]) -> str:
        """The block with its commands run and their output in place of the old one."""
        for answer in answers:
            self._fake.answer(answer)
        asked = commands(body)
        script = self._script(asked)
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.home,
            env=clean_environment(str(self.home)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
        )
        return self._filled(body, asked, done.stdout.decode())

    def serve(self, body: str, port: str) -> str:
        """The block with its commands run, the last of them left running; it listens on the page's `port`."""
        asked = commands(body)
        log = self.home / f".server-{port}"
        script = self._script([*asked[:-1], f"exec {asked[-1]}"])
        with log.open("wb") as output:
            server = subprocess.Popen(
                ["bash", "-c", script],
                cwd=self.home,
                env=clean_environment(str(self.home)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._servers.callback(_end, server)
        _await(server, log, int(self.ports[port]))
        return self._filled(body, asked, log.read_text(encoding="utf-8"))

    def _script(self, asked: Iterable[str]) -> str:
        script = "".join(f"{_MARKED}\n{each}\n" for each in asked).replace("\n> ", "\n")
        script = self._led_here(script) if _CALLS.search(script) or "=llm://" in script else script
        return _swapped(script, self.ports)

    def _filled(self, body: str, asked: Iterable[str], output: str) -> str:
        said = output.split(_MARK)[1:]
        fresh = "".join(f"$ {each}\n{self._shown(out)}" for each, out in zip(asked, said, strict=True))
        return body if _VARIES.sub("#", fresh) == _VARIES.sub("#", body) else fresh

    def _led_here(self, text: str) -> str:
        def here(match: re.Match[str]) -> str:
            if match[2] in self.ports:
                return match[0]
            self._port = match[2]
            return f"{match[1]}:{self._fake.port}"

        return _LOCAL.sub(here, text)

    def _shown(self, output: str) -> str:
        output = re.sub(rf"\b{self._fake.port}\b", self._port, output).replace(str(self.home), "~")
        output = _swapped(output, {real: given for given, real in self.ports.items()})
        return output if output.endswith("\n") or not output else output + "\n"


def commands(body: str) -> list[str]:
    """The commands of a console block, continuation lines with them."""
    found: list[str] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append(line[2:])
        elif line.startswith("> ") and found:
            found[-1] += f"\n{line}"
    return found


def port_of(text: str) -> str:
    """The port that a server listens on, by its command or by the block's directive (`port=9000`)."""
    return str(_PORT.findall(text)[-1])


@contextmanager
def stage(ports: Iterable[str] = ()) -> Iterator[Stage]:
    """A stage for one page; `ports` are those that its servers listen on."""
    with (
        tempfile.TemporaryDirectory(prefix="onym-docs-") as home,
        FakeProvider() as fake,
        ExitStack() as servers,
    ):
        yield Stage(Path(home), fake, servers, {each: _free() for each in ports})


def _swapped(text: str, ports: Mapping[str, str]) -> str:
    for given, real in ports.items():
        text = re.sub(rf"\b{given}\b", real, text)
    return text


def _free() -> str:
    """A port that nobody listens on, below those that systems give to outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(12_000, 32_000)
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return str(port)


def _await(server: subprocess.Popen[bytes], log: Path, port: int) -> None:
    """Until it listens, and has said what there is to say of that."""
    ends = time.monotonic() + _PATIENCE
    while True:
        try:
            peer = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE)
            break
        except ConnectionRefusedError:
            if server.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"a server does not run: {log.read_text(encoding='utf-8')}") from None
            time.sleep(0.02)
    with peer:  # whoever answers has said all that it says before
        peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        peer.recv(1)


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    server.wait(_PATIENCE)
