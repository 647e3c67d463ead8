"""Loopback servers that keep batches as OpenAI and Anthropic do: files, states, results. Nothing sleeps.

Each look at a batch moves it one state on, so that a test never waits for time. `hold(step)` stops the next
request of that kind, before or after it has had its effect, until `release()`: a test kills its client there.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

MODEL = "m"
KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"


class BatchServer:
    """What both have in common. `asked` counts prompts by how often their answer has to be paid."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.batches: dict[str, dict[str, Any]] = {}
        #: how the requests of a batch come to an end; a test may replace it
        self.states = ["in_progress"]
        #: what to say instead, by step: a function of (server, body of the good answer)
        self.spoil: dict[str, list[Callable[[bytes], tuple[int, str, bytes]]]] = {}
        #: what becomes of a request; a test may replace it
        self.outcome: Callable[[str], Any] = lambda prompt: None
        #: statuses with which requests are refused before they have an effect, by step
        self.refuse: dict[str, list[int]] = {}
        self.held = threading.Event()
        self._gate = threading.Event()
        self._hold: tuple[str, str] | None = None
        self._lock = threading.RLock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                try:
                    outer._answer(self, body)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_GET = do_POST = _serve  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def hold(self, step: str, when: str) -> None:
        """Stop the next request of this step `before` or `after` it has had its effect."""
        self.held.clear()
        self._gate.clear()
        self._hold = (step, when)

    def release(self) -> None:
        self._gate.set()

    def steps(self) -> list[str]:
        """What was asked for, in order."""
        return [self.step(method, urlsplit(target).path) for method, target in self.requests]

    def step(self, method: str, path: str) -> str:
        raise NotImplementedError

    def act(self, step: str, path: str, query: dict[str, list[str]], body: bytes, media: str) -> Any:
        raise NotImplementedError

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        parts = urlsplit(handler.path)
        step = self.step(handler.command, parts.path)
        held = self._hold if self._hold is not None and self._hold[0] == step else None
        if held is not None:
            self._hold = None
            if held[1] == "before":
                self._wait()
                handler.close_connection = True
                return
        with self._lock:
            self.requests.append((handler.command, handler.path))
            self.headers.append({name.lower(): value for name, value in handler.headers.items()})
            status, media, data = 200, "application/json", b""
            if self.refuse.get(step):
                status = self.refuse[step].pop(0)
                data = json.dumps({"error": {"type": "x", "message": f"no: {KEY}"}}).encode()
                self._say(handler, status, media, data)
                return
            try:
                found = self.act(
                    step, parts.path, parse_qs(parts.query), body, handler.headers["content-type"] or ""
                )
                data = found if isinstance(found, bytes) else json.dumps(found).encode()
            except (KeyError, ValueError):
                status, data = 404, b'{"error": {"type": "not_found_error", "message": "no such thing"}}'
            if self.spoil.get(step):
                status, media, data = self.spoil[step].pop(0)(data)
        if held is not None and held[1] == "half":
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data[: len(data) // 2])
            self._wait()
            handler.close_connection = True
            return
        if held is not None:
            self._wait()
        self._say(handler, status, media, data)

    def _say(self, handler: BaseHTTPRequestHandler, status: int, media: str, data: bytes) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", media)
        handler.send_header("Content-Length", str(len(data)))
        if status == 429:
            handler.send_header("Retry-After", "7")
        handler.end_headers()
        handler.wfile.write(data)

    def _wait(self) -> None:
        self.held.set()
        self._gate.wait(600)

    def _advance(self, batch: dict[str, Any]) -> None:
        """Move a batch on by one state; at its end every request of it has been answered, and paid."""
        if batch["ended"]:
            return
        if batch["states"]:
            batch["state"] = batch["states"].pop(0)
            return
        batch["ended"] = True
        if batch["state"] != "failed":
            self.finish(batch)

    def finish(self, batch: dict[str, Any]) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class OpenAIServer(BatchServer):
    """POST /v1/files, /v1/batches and what belongs to them. `end` is how batches end."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self.end = "completed"
        self.errors: Any = None
        self.page = 100

    def uri(self, query: str = "") -> str:
        return f"llm://x:{KEY}@127.0.0.1:{self.port}/{MODEL}{query}"

    def step(self, method: str, path: str) -> str:
        if path == "/v1/files":
            return "upload"
        if path.startswith("/v1/files/"):
            return "results"
        if path == "/v1/batches":
            return "create" if method == "POST" else "list"
        return "cancel" if path.endswith("/cancel") else "look"

    def act(self, step: str, path: str, query: dict[str, list[str]], body: bytes, media: str) -> Any:
        return getattr(self, step)(path, query, body, media)

    def upload(self, path: str, query: Any, body: bytes, media: str) -> Any:
        boundary = media.partition("boundary=")[2].encode()
        parts = [each.partition(b"\r\n\r\n") for each in body.split(b"--" + boundary)[1:-1]]
        data = {re.search(rb'name="(\w+)"', head)[1]: value[:-2] for head, _, value in parts}  # type: ignore[index]
        assert data[b"purpose"] == b"batch"
        name = f"file-{len(self.files)}"
        self.files[name] = data[b"file"]
        return {"id": name, "object": "file", "bytes": len(data[b"file"]), "purpose": "batch",
                "created_at": 1, "filename": "x", "status": "processed"}  # fmt: skip

    def create(self, path: str, query: Any, body: bytes, media: str) -> Any:
        given = json.loads(body)
        name = f"batch_{len(self.batches)}"
        rows = [json.loads(line) for line in self.files[given["input_file_id"]].splitlines()]
        batch = {"id": name, "given": given, "rows": rows, "state": "validating", "ended": False,
                 "states": list(self.states), "out": None, "err": None}  # fmt: skip
        self.batches[name] = batch
        return self.show(batch)

    def show(self, batch: dict[str, Any]) -> Any:
        total = len(batch["rows"])
        done = total if batch["ended"] else 0
        return {
            **batch["given"],
            "id": batch["id"],
            "object": "batch",
            "status": batch["state"],
            "created_at": 1_700_000_000,
            "request_counts": {"total": total, "completed": done, "failed": 0},
            "output_file_id": batch["out"],
            "error_file_id": batch["err"],
            "errors": self.errors if batch["state"] == "failed" else None,
        }

    def look(self, path: str, query: Any, body: bytes, media: str) -> Any:
        batch = self.batches[path.rpartition("/")[2]]
        self._advance(batch)
        return self.show(batch)

    def cancel(self, path: str, query: Any, body: bytes, media: str) -> Any:
        batch = self.batches[path.split("/")[3]]
        batch["states"], batch["end"] = ["cancelling"], "cancelled"
        return self.show(batch)

    def list(self, path: str, query: dict[str, list[str]], body: bytes, media: str) -> Any:
        found = list(reversed(self.batches.values()))
        if "after" in query:
            names = [each["id"] for each in found]
            found = found[names.index(query["after"][0]) + 1 :]
        page = found[: self.page]
        return {
            "object": "list",
            "data": [self.show(each) for each in page],
            "has_more": len(page) < len(found),
        }

    def results(self, path: str, query: Any, body: bytes, media: str) -> bytes:
        return self.files[path.split("/")[3]]

    def finish(self, batch: dict[str, Any]) -> None:
        batch["state"] = end = batch.get("end", self.end)
        if end == "failed":
            return
        out, err = [], []
        for at, row in enumerate(batch["rows"]):
            prompt = prompt_of(row["body"])
            line = {"id": f"r{at}", "custom_id": row["custom_id"], "response": None, "error": None}
            special = self.outcome(prompt)
            if special is None and end != "completed" and at % 2:
                special = {"error": {"code": f"batch_{end}", "message": "not in time"}}
            if special is None:
                self.asked[prompt] += 1
                body = answer(row["url"], prompt)
                out.append(
                    {**line, "response": {"status_code": 200, "request_id": f"req_{at}", "body": body}}
                )
            else:
                err.append({**line, **special})
        # results come in another order than requests
        for name, lines in (("out", out), ("err", err)):
            if lines:
                batch[name] = f"file-{len(self.files)}"
                self.files[batch[name]] = b"".join(
                    json.dumps(each).encode() + b"\n" for each in reversed(lines)
                )


class AnthropicServer(BatchServer):
    """POST /v1/messages/batches and what belongs to it."""

    #: where `results_url` leads
    elsewhere: str | None = None

    def step(self, method: str, path: str) -> str:
        if path == "/v1/messages/batches":
            return "create" if method == "POST" else "list"
        for end in ("results", "cancel"):
            if path.endswith(f"/{end}"):
                return end
        return "look"

    def act(self, step: str, path: str, query: dict[str, list[str]], body: bytes, media: str) -> Any:
        if step == "create":
            batch = {
                "id": f"msgbatch_{len(self.batches)}",
                "rows": json.loads(body)["requests"],
                "ended": False,
                "states": list(self.states),
                "state": "in_progress",
                "results": [],
                "stopped": False,
            }
            self.batches[batch["id"]] = batch
            return self.show(batch)
        if step == "list":
            found = list(reversed(self.batches.values()))
            return {"data": [self.show(each) for each in found], "has_more": False,
                    "first_id": None, "last_id": found[-1]["id"] if found else None}  # fmt: skip
        batch = self.batches[path.split("/")[4]]
        if step == "cancel":
            batch["states"], batch["stopped"] = [], True
        elif step == "look":
            self._advance(batch)
        elif not batch["ended"]:
            raise KeyError(path)
        else:
            return b"".join(json.dumps(each).encode() + b"\n" for each in reversed(batch["results"]))
        return self.show(batch)

    def show(self, batch: dict[str, Any]) -> Any:
        ended, total = batch["ended"], len(batch["rows"])
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        counts["succeeded" if ended else "processing"] = total
        return {
            "id": batch["id"],
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": counts,
            "created_at": "2036-11-21T20:00:00Z",
            "expires_at": "2036-11-22T20:00:00Z",
            "ended_at": None,
            "archived_at": None,
            "cancel_initiated_at": "2036-11-21T20:30:00Z" if batch["stopped"] else None,
            "results_url": (self.elsewhere or self.url) + f"/v1/messages/batches/{batch['id']}/results"
            if ended
            else None,
        }

    def finish(self, batch: dict[str, Any]) -> None:
        for at, row in enumerate(batch["rows"]):
            prompt = prompt_of(row["params"])
            result = self.outcome(prompt)
            if result is None and batch["stopped"] and at % 2:
                result = {"type": "canceled"}
            if result is None:
                self.asked[prompt] += 1
                result = {"type": "succeeded", "message": message(prompt.upper())}
            batch["results"].append({"custom_id": row["custom_id"], "result": result})


def prompt_of(body: dict[str, Any]) -> str:
    """The text that a request asks."""
    asked = body.get("messages") or body["input"]
    if isinstance(asked, str):
        return asked
    content = asked[-1]["content"]
    return str(content if isinstance(content, str) else content[-1]["text"])


def answer(url: str, prompt: str) -> dict[str, Any]:
    """The body of an answer of that operation."""
    if url.endswith("/responses"):
        part = {"type": "output_text", "text": prompt.upper(), "annotations": []}
        item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [part]}
        usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
        return {"id": "r", "object": "response", "model": MODEL, "status": "completed", "output": [item],
                "usage": usage}  # fmt: skip
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": prompt.upper()},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice],
            "usage": usage}  # fmt: skip


def message(text: str) -> dict[str, Any]:
    """A message of Anthropic's."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
