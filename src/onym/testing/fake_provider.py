"""A provider for tests: a local HTTP server that returns the answers you script.

    with FakeProvider() as fake:
        fake.answer("Hello")
        client = onym.connect(fake.uri("some-model"), policy=onym.Policy.local())
        assert client.chat("Hi").text == "Hello"
        assert fake.requests[0].json["model"] == "some-model"

It speaks the OpenAI chat format below `/v1`, streams if the request asks for it, and repeats the last
message's text if nothing is scripted. It never sleeps: if an answer waits, it waits for the test.
"""

from __future__ import annotations

import json
import socket
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


def build_tool_call(identity: str, name: str, arguments: str) -> dict[str, Any]:
    """Return a tool call of an answer."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def split_words(text: str) -> list[str]:
    """Split a text into words, each with the blank after it."""
    return [word + " " for word in text.split(" ")[:-1]] + [text.split(" ")[-1]] if text else []


def iter_deltas(
    parts: Sequence[str], reasoning: str | None, calls: Sequence[tuple[str, str, str]]
) -> Iterator[dict[str, Any]]:
    """Yield the deltas of a streamed answer."""
    yield {"role": "assistant", "content": None}
    if reasoning:
        yield {"reasoning_content": reasoning}
    for part in parts:
        yield {"content": part}
    for index, (identity, name, arguments) in enumerate(calls):
        half = len(arguments) // 2
        yield {"tool_calls": [{"index": index, **build_tool_call(identity, name, arguments[:half])}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]}


#: members of every answer and chunk
_HEAD = {"id": "chatcmpl-1", "created": 1}


def build_chunk(delta: Mapping[str, Any], *, model: str = "", finish: str | None = None) -> dict[str, Any]:
    """Return one chunk of a streamed answer."""
    choice = {"index": 0, "delta": dict(delta), "finish_reason": finish}
    return {**_HEAD, "object": "chat.completion.chunk", "model": model, "choices": [choice]}


def encode_sse(data: Mapping[str, Any]) -> bytes:
    """Encode data as a server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def get_last_text(body: Mapping[str, Any]) -> str:
    """Return the text of the last message."""
    content = body["messages"][-1].get("content")
    return content if isinstance(content, str) else json.dumps(content)


def make_vector(text: str) -> list[float]:
    """Return three numbers that depend only on the text."""
    encoded = text.encode()
    return [len(encoded) / 100, sum(encoded) / 10_000, (encoded[0] if encoded else 0) / 255]


_WRONG_KEY = {"message": "Incorrect API key", "type": "invalid_request_error", "code": "invalid_api_key"}
_USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as received: header names in lower case, the body in bytes. `repr` shows no header."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    #: the number of the request's connection
    connection: int

    @property
    def json(self) -> Any:
        """The body as data."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Script:
    """One answer. `pieces` are written one by one; None waits at `gate`."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Sequence[bytes | None] = ()
    chunked: bool = False
    whole: bool = True
    endless: bytes = b""
    text: str | None = None
    message: Mapping[str, Any] = field(default_factory=dict)
    deltas: Sequence[Mapping[str, Any]] = ()
    finish: str = "stop"
    usage: Mapping[str, Any] = field(default_factory=lambda: _USAGE)
    gate: bool = False
    linger: bool = False


class FakeProvider:
    """An OpenAI-compatible server on 127.0.0.1 whose answers are scripted, first in, first out.

    `requests` has the received requests; `arrived` is set with the first. `gone` is set when a client
    disconnects during an answer. `release()` opens the gate at which `answer(gate=True)` waits after its
    first piece of text.
    """

    def __init__(self, *, key: str | None = None, models: Sequence[str] = ("fake-model",)) -> None:
        self.requests: list[Recorded] = []
        self.arrived = threading.Event()
        self.gone = threading.Event()
        self.connections = 0
        self._key = key
        self._models = tuple(models)
        self._scripts: deque[_Script | None] = deque()
        self._gate = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving and close every connection."""
        self._gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        """The address and port of the server."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The base URL, for an OpenAI SDK."""
        return f"http://127.0.0.1:{self.port}/v1"

    def uri(self, model: str = "fake-model", query: str = "", *, key: str | None = None) -> str:
        """Return an llm URI of this server; `key` defaults to the server's own key."""
        key = self._key if key is None else key
        user = "" if key is None else f"test:{key}@"
        return f"llm://{user}127.0.0.1:{self.port}/{model}" + (f"?{query}" if query else "")

    def answer(
        self,
        text: str | None = "",
        *,
        tool_calls: Sequence[tuple[str, str, str]] = (),
        reasoning: str | None = None,
        finish: str | None = None,
        usage: Mapping[str, Any] = _USAGE,
        pieces: Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        gate: bool = False,
        endless: bool = False,
        linger: bool = False,
    ) -> Self:
        """Answer the next chat request; `tool_calls` are (id, name, arguments as JSON text).

        A streamed answer sends the text as `pieces` (default: word by word). `gate` waits for `release()`
        after the first piece, `endless` repeats the last piece until the client disconnects, and `linger`
        waits between the last event and the end of the body.
        """
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if reasoning is not None:
            message["reasoning_content"] = reasoning
        if tool_calls:
            message["tool_calls"] = [build_tool_call(*tool_call) for tool_call in tool_calls]
        parts = pieces if pieces is not None else split_words(text or "")
        last = encode_sse(build_chunk({"content": parts[-1] if parts else "x"})) if endless else b""
        return self._add_script(
            text=text,
            message=message,
            deltas=tuple(iter_deltas(parts, reasoning, tool_calls)),
            finish=finish or ("tool_calls" if tool_calls else "stop"),
            usage=usage,
            headers=headers or {},
            gate=gate,
            linger=linger,
            endless=last,
        )

    def fail(
        self,
        status: int,
        message: str = "no",
        *,
        code: str | None = None,
        type: str | None = None,  # noqa: A002 - the member's own name on the wire
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Self:
        """Answer the next request with OpenAI's error body."""
        error = {"message": message, "type": type, "param": param, "code": code}
        return self.raw(json.dumps({"error": error}).encode(), status=status, headers=headers)

    def raw(
        self,
        *pieces: bytes,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        chunked: bool = False,
        whole: bool = True,
    ) -> Self:
        """Answer the next request with these bytes. `whole=False` breaks the connection after them."""
        headers = {"content-type": "application/json", **(headers or {})}
        return self._add_script(status=status, headers=headers, pieces=pieces, chunked=chunked, whole=whole)

    def drop(self) -> Self:
        """Close the connection at the next request, without an answer."""
        self._scripts.append(None)
        return self

    def release(self) -> None:
        """Open the gate."""
        self._gate.set()

    def _add_script(self, **members: Any) -> Self:
        self._scripts.append(_Script(**members))
        return self

    def _record_request(self, request: Recorded) -> _Script | None:
        with self._lock:
            self.requests.append(request)
            self.arrived.set()
            if request.headers.get("authorization") != f"Bearer {self._key}" and self._key is not None:
                return _build_json_script({"error": _WRONG_KEY}, status=401)
            if request.path.endswith("/models") or request.path.endswith("/embeddings"):
                return self._scripts.popleft() if self._scripts else self._build_default_script(request)
            if self._scripts:
                return self._scripts.popleft()
        text = get_last_text(request.json)
        return _Script(
            message={"role": "assistant", "content": text},
            deltas=tuple(iter_deltas(split_words(text), None, ())),
        )

    def _build_default_script(self, request: Recorded) -> _Script:
        if request.path.endswith("/models"):
            models = [{"id": model, "object": "model"} for model in self._models]
            return _build_json_script({"object": "list", "data": models})
        texts = request.json["input"]
        texts = [texts] if isinstance(texts, str) else texts
        vectors = [
            {"object": "embedding", "index": index, "embedding": make_vector(text)}
            for index, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        return _build_json_script(
            {"object": "list", "model": request.json["model"], "data": vectors, "usage": usage}
        )


class _Server(ThreadingHTTPServer):
    # a client may open many connections at once
    request_queue_size = 256
    daemon_threads = True
    block_on_close = False

    def __init__(self, fake: FakeProvider) -> None:
        self.fake = fake
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        for connection in list(self._open):
            with suppress(OSError):  # the client has closed the connection first
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that disconnects; tests check `gone`."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # one write per answer, and no waiting for an acknowledgement between two
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.fake.connections += 1
        self._number = self.server.fake.connections

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Print nothing, because tests have their own output."""

    def do_GET(self) -> None:
        fake = self.server.fake
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        script = fake._record_request(Recorded(self.command, self.path, headers, body, self._number))
        if script is None:
            self.close_connection = True
            return
        try:
            if script.pieces or not script.message:
                self._send_raw(script)
            elif json.loads(body).get("stream"):
                self._send_stream(script, json.loads(body))
            else:
                self._send_completion(script, json.loads(body))
        except OSError:
            self.close_connection = True
            fake.gone.set()

    def do_POST(self) -> None:
        self.do_GET()

    def _send_raw(self, script: _Script) -> None:
        length = sum(len(piece) for piece in script.pieces if piece is not None)
        extra = {} if script.chunked else {"content-length": str(length + (0 if script.whole else 1))}
        self._send_head(script.status, {**script.headers, **extra}, chunked=script.chunked)
        for piece in script.pieces:
            self._send_piece(piece or b"", script.chunked)
        if script.whole and script.chunked:
            self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
        self.close_connection = self.close_connection or not script.whole

    def _send_completion(self, script: _Script, request: Mapping[str, Any]) -> None:
        choice = {"index": 0, "message": script.message, "finish_reason": script.finish}
        answer = {
            **_HEAD,
            "object": "chat.completion",
            "model": request.get("model", ""),
            "choices": [choice],
        }
        body = json.dumps({**answer, "usage": dict(script.usage)}).encode()
        if script.gate:
            self.server.fake._gate.wait()
        headers = {"content-type": "application/json", "x-request-id": "req-fake", **script.headers}
        self._send_head(200, {**headers, "content-length": str(len(body))}, chunked=False)
        self.wfile.write(body)
        self.wfile.flush()

    def _send_stream(self, script: _Script, request: Mapping[str, Any]) -> None:
        model = request.get("model", "")
        headers = {"content-type": "text/event-stream", "x-request-id": "req-fake", **script.headers}
        self._send_head(200, headers, chunked=True)
        for index, delta in enumerate(script.deltas):
            self._send_piece(encode_sse(build_chunk(delta, model=model)), chunked=True)
            if script.gate and index == 1:
                self.server.fake._gate.wait()
        while script.endless:
            self._send_piece(script.endless, chunked=True)
        self._send_piece(encode_sse(build_chunk({}, model=model, finish=script.finish)), chunked=True)
        if (request.get("stream_options") or {}).get("include_usage"):
            last = {**build_chunk({}, model=model), "choices": [], "usage": dict(script.usage)}
            self._send_piece(encode_sse(last), chunked=True)
        self._send_piece(b"data: [DONE]\n\n", chunked=True)
        if script.linger:
            self.server.fake._gate.wait()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _send_head(self, status: int, headers: Mapping[str, str], *, chunked: bool) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if chunked:
            self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _send_piece(self, piece: bytes, chunked: bool) -> None:
        if piece:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        self.wfile.flush()


def _build_json_script(data: Mapping[str, Any], status: int = 200) -> _Script:
    headers = {"content-type": "application/json"}
    return _Script(status=status, headers=headers, pieces=(json.dumps(data).encode(),))
