"""Rows on their way into batches: what each is called in the output, and how many fit into one batch."""

from __future__ import annotations

from array import array
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

__all__ = ["ROOM", "SEPARATOR", "Labels", "Load"]

#: octets of requests in one batch. The APIs take 200 MB and more, but they are in memory several times over
ROOM: Final = 32 * 1024 * 1024
#: between the token of a batch and the place of a row
SEPARATOR: Final = "-"


class Labels:
    """The labels of rows, in a temporary file: a million of them take 8 MB of memory."""

    def __init__(self, folder: Path) -> None:
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `close`
        self._places = array("q")
        self._end = 0

    def __contains__(self, index: int) -> bool:
        return index < len(self._places) and self._places[index] >= 0

    def put(self, index: int, label: str) -> None:
        """Take the label of a row. Rows come in rising order."""
        self._places.extend([-1] * (index - len(self._places)))
        self._places.append(self._end)
        data = label.encode("utf-8", "surrogatepass")
        self._file.write(len(data).to_bytes(4, "big") + data)
        self._end += 4 + len(data)

    def get(self, index: int) -> str:
        """The label of a row that was put."""
        self._file.seek(self._places[index])
        size = int.from_bytes(self._file.read(4), "big")
        label = self._file.read(size).decode("utf-8", "surrogatepass")
        self._file.seek(self._end)
        return label

    def close(self) -> None:
        """Drop them."""
        self._file.close()


class Load:
    """The rows of the next batch: at most `most` requests and `room` octets. `token` will name it."""

    def __init__(self, token: str, most: int, room: int) -> None:
        self.token = token
        self.rows: list[int] = []
        self.lines: list[bytes] = []
        self._most = most
        self._room = room
        self._size = 0

    def name(self, index: int) -> str:
        """What a row is called at the provider."""
        return f"{self.token}{SEPARATOR}{index}"

    def fits(self, line: bytes) -> bool:
        """Whether there is room for one more. There always is for the first."""
        return not self.rows or (len(self.rows) < self._most and self._size + len(line) <= self._room)

    def add(self, index: int, line: bytes) -> None:
        """Take it."""
        self.rows.append(index)
        self.lines.append(line)
        self._size += len(line)
