"""The state of a batch on disk: binding, journal, submission log, labels, and sorting in bounded memory.

`OUTPUT.batch` is locked during a run and binds the results to their input, `OUTPUT.journal` holds them until
they are sorted, `OUTPUT.provider` records what the provider has. Each step is durable before Onym acts on it.
"""

from __future__ import annotations

import os
import threading
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import merge
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final, Literal, NamedTuple

import msgspec

from onym.common.files import replace_file, try_lock
from onym.common.platform import BINARY, CLOSE_ON_EXEC, NO_FOLLOW, sync_file, sync_folder
from onym.errors import UsageError

#: flags for the files beside an output. Their names can be guessed, so a link that another user put there is
#: not followed
OPEN_FLAGS: Final = os.O_RDWR | os.O_CREAT | NO_FOLLOW | CLOSE_ON_EXEC | BINARY
#: the same for a journal: every write appends
APPEND_FLAGS: Final = OPEN_FLAGS | os.O_APPEND


def touch_file(path: Path) -> None:
    """Create an empty file if there is none; raises OSError."""
    os.close(os.open(path, APPEND_FLAGS, 0o666))


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes; raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class _RowIds(msgspec.Struct):
    id: Any = None
    custom_id: Any = None


_IDS_DECODER = msgspec.json.Decoder(_RowIds)


def get_label(index: int, line: bytes) -> str:
    """Return the label of a row: its `id` or `custom_id`, or its index as decimal text."""
    try:
        ids = _IDS_DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return str(index)
    for label in (ids.id, ids.custom_id):
        if type(label) in (str, int):
            return str(label)
    return str(index)


_LINE_START = b'{"index":'


class LineHead(msgspec.Struct):
    """The members of a journal line that a run decodes."""

    index: int
    status: Literal["ok", "error"]


_HEAD_DECODER = msgspec.json.Decoder(LineHead)


def decode_head(line: bytes) -> LineHead | None:
    """Return the index and status of a complete, valid line, else None. The line end may be missing."""
    if not line.startswith(_LINE_START):
        return None
    try:
        # the decoder checks UTF-8 only in the fields that it keeps
        line.decode()
        return _HEAD_DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def parse_index(line: bytes) -> int:
    """Return the index of a valid line."""
    return int(line[len(_LINE_START) : line.index(b",")])


#: bytes of lines in memory before they are written to the temporary file
_SORT_MEMORY: Final = 16 * 1024 * 1024
#: Python's overhead per line in bytes
_LINE_OVERHEAD: Final = 64
#: bytes that are read ahead of each sorted run
_READ_AHEAD: Final = 32 * 1024


def sort_lines(
    lines: Iterable[bytes],
    folder: Path,
    *,
    key: Callable[[bytes], Any] | None = None,
    room: int = _SORT_MEMORY,
) -> Iterator[bytes]:
    """Yield the lines (with their line ends) in the order of `key`, by default of the line itself.

    At most about `room` bytes are in memory. The temporary file is in `folder`, has no name if the system
    allows that, and is removed with the iterator.
    """
    runs: list[tuple[int, int]] = []
    block: list[bytes] = []
    size = 0
    with TemporaryFile(dir=folder) as spill:
        for line in lines:
            block.append(line)
            size += len(line) + _LINE_OVERHEAD
            if size > room:
                block.sort(key=key)
                start = spill.tell()
                spill.writelines(block)
                runs.append((start, spill.tell()))
                block, size = [], 0
        block.sort(key=key)
        if not runs:
            yield from block
            return
        spill.flush()
        yield from merge(*[_read_run(spill, start, end) for start, end in runs], block, key=key)


def _read_run(spill: IO[bytes], at: int, end: int) -> Iterator[bytes]:
    """Yield the lines between two offsets of the file."""
    rest = b""
    while at < end:
        spill.seek(at)
        data = spill.read(min(_READ_AHEAD, end - at))
        at += len(data)
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line + b"\n"


def count_rows(rows: Iterable[tuple[int, bytes]], folder: Path) -> int:
    """Return the number of rows. Raises UsageError if two rows have the same label, and names both."""
    count, before = 0, b""

    def iter_digests() -> Iterator[bytes]:
        """Yield one entry per row: a digest of its label and its index, both in hexadecimal digits."""
        nonlocal count
        for index, line in rows:
            count += 1
            # labels with equal 128-bit digests are equal for all practical purposes
            label = get_label(index, line).encode("utf-8", "surrogatepass")
            yield b"%s%x\n" % (blake2b(label, digest_size=16).hexdigest().encode(), index)

    for entry in sort_lines(iter_digests(), folder):
        if entry[:32] == before[:32]:
            first, second = sorted((int(before[32:], 16), int(entry[32:], 16)))
            raise UsageError(
                f"rows {first} and {second} have the same id (the first row is 0)",
                code="usage.same-id",
                hint="Give every row its own id, or remove the ids.",
            )
        before = entry
    return count


class RowBitmap:
    """A set of indexes below `total`, with one bit for each index up to the highest."""

    __slots__ = ("_bits", "count", "total")

    def __init__(self, total: int) -> None:
        self._bits = bytearray()
        self.total = total
        self.count = 0

    def __contains__(self, index: int) -> bool:
        at = index >> 3
        return 0 <= at < len(self._bits) and bool(self._bits[at] >> (index & 7) & 1)

    def __len__(self) -> int:
        return self.count

    def add(self, index: int) -> bool:
        """Add an index; False if the set contains it, or if it is not an index of this input."""
        if not 0 <= index < self.total:
            return False
        at, bit = index >> 3, 1 << (index & 7)
        if at >= len(self._bits):
            # half as much again, so that a million rows need few copies
            room = min(max(at + 1, len(self._bits) * 3 // 2), (self.total + 7) >> 3)
            self._bits.extend(bytes(room - len(self._bits)))
        if self._bits[at] & bit:
            return False
        self._bits[at] |= bit
        self.count += 1
        return True


_BINDING_VERSION: Final = 1
#: members of the binding, and the message if they differ
_MISMATCH_MESSAGES: Final = {
    "version": "an incompatible version of Onym began these results",
    "endpoint": "the results belong to another endpoint or model",
    "settings": "the results were requested with other parameters",
    "input": "the results belong to another input",
    "order": "the results have another order",
}


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """What the results belong to. Results with a different binding belong to another run.

    `input` and `settings` are digests, `endpoint` is the endpoint without its key, `rows` is the number of
    rows in the input (-1 before they were counted).
    """

    endpoint: str
    settings: str
    input: str
    order: str
    rows: int = -1
    version: int = _BINDING_VERSION


class BindingFile:
    """The file `OUTPUT.batch`, open and locked. Raises UsageError if another run has the lock."""

    def __init__(self, output: Path) -> None:
        self.path = output.with_name(output.name + ".batch")
        try:
            self._descriptor = os.open(self.path, OPEN_FLAGS, 0o666)
        except OSError as error:
            raise UsageError(
                f"cannot write {self.path}: {error.strerror}", code="usage.output-file"
            ) from error
        if not try_lock(self._descriptor):
            os.close(self._descriptor)
            raise UsageError(
                f"another run is writing {output}",
                code="usage.batch-locked",
                hint="Wait for that run, or stop it.",
            )

    def load(self) -> Binding | None:
        """Return the binding; None if the file is empty or incomplete."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        try:
            return msgspec.json.decode(os.read(self._descriptor, 1 << 20), type=Binding)
        except msgspec.MsgspecError:
            # the write was interrupted, so nothing had been sent
            return None

    def save(self, binding: Binding) -> None:
        """Replace the binding durably."""
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        write_all(self._descriptor, msgspec.json.encode(binding) + b"\n")
        os.fsync(self._descriptor)
        sync_folder(self.path.parent)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


def require_same_run(former: Binding, binding: Binding) -> None:
    """Raise UsageError if the results belong to another run, and name the difference."""
    for member, text in _MISMATCH_MESSAGES.items():
        if getattr(former, member) != getattr(binding, member):
            if member == "endpoint":
                text += f": {former.endpoint}"
            raise UsageError(
                text,
                code=f"usage.batch-{member}",
                hint="Choose another output, or delete these results with --restart (restart=True).",
            )


def compute_digest(value: Any) -> str:
    """Return a short digest of plain data."""
    return blake2b(msgspec.json.encode(value, order="sorted", enc_hook=str), digest_size=16).hexdigest()


#: seconds during which results are gathered before they are synced, unless so many bytes arrive
_GROUP_DELAY: Final = 0.01
_GROUP_SIZE: Final = 1024 * 1024


class JournalCounts(NamedTuple):
    """The content of a journal: answered rows, rows that failed permanently, and dropped lines."""

    ok: int = 0
    failed: int = 0
    dropped: int = 0


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a journal with their line ends; nothing if the file does not exist."""
    try:
        with path.open("rb") as journal:
            yield from journal
    except FileNotFoundError:
        return


def repair_journal(
    path: Path, done: RowBitmap, *, into: Path | None = None, drop_failed: bool = False
) -> JournalCounts:
    """Add the rows with a valid line to `done`, and remove all other lines from the journal.

    With `into` the valid lines go to that file, and `path` stays unchanged. With `drop_failed` the lines of
    failed rows are removed too, so that these rows are sent again. Counted rows are durable. Raises OSError.
    """
    counts, end, ended, only_tail = Counter[str](), 0, True, True
    for line, status in _iter_statuses(path, done, drop_failed=drop_failed):
        counts[status] += 1
        if status != "dropped":
            end += len(line)
            ended = line.endswith(b"\n")
            # whether all dropped lines follow all valid ones
            only_tail = not counts["dropped"]
    if into is not None or (counts["dropped"] and not only_tail):
        with replace_file(into or path) as out:
            for line, status in _iter_statuses(path, RowBitmap(done.total), drop_failed=drop_failed):
                if status != "dropped":
                    out.write(line if line.endswith(b"\n") else line + b"\n")
    elif path.exists():
        _truncate_journal(path, end, ended=ended)
    return JournalCounts(counts["ok"], counts["error"], counts["dropped"])


def _iter_statuses(
    path: Path, done: RowBitmap, *, drop_failed: bool
) -> Iterator[tuple[bytes, Literal["ok", "error", "dropped"]]]:
    """Yield every line of a journal and its status. The row of a valid line is added to `done`."""
    for line in read_lines(path):
        head = decode_head(line)
        if head is None or (drop_failed and head.status == "error") or not done.add(head.index):
            yield line, "dropped"
        else:
            yield line, head.status


def _truncate_journal(path: Path, end: int, *, ended: bool) -> None:
    """Remove everything after the last valid line, and end that line if its line end is missing."""
    descriptor = os.open(path, APPEND_FLAGS)
    try:
        os.ftruncate(descriptor, end)
        if not ended:
            write_all(descriptor, b"\n")
        sync_file(descriptor)
    finally:
        os.close(descriptor)


class JournalWriter:
    """Appends lines to a journal and reports when they are durable.

    `on_written(count, error)` is called from the writing thread: `count` more lines are on the disk, in the
    order of `append`; or an OSError occurred, and nothing more is written. Lines that were not synced are
    then removed again, as far as the disk allows it.
    """

    def __init__(
        self,
        path: Path,
        on_written: Callable[[int, OSError | None], None],
        *,
        gather: float = _GROUP_DELAY,
        synced: Callable[[int], None] = sync_file,
    ) -> None:
        self._descriptor = os.open(path, APPEND_FLAGS, 0o666)
        sync_folder(path.parent)
        self._durable = os.fstat(self._descriptor).st_size
        self._on_written = on_written
        self._gather = gather
        self._sync = synced
        self._wake = threading.Condition()
        self._lines: list[bytes] = []
        self._size = 0
        self._ending = False
        self._thread = threading.Thread(target=self._write_groups, name="onym-batch-journal", daemon=True)
        self._thread.start()

    def append(self, line: bytes) -> None:
        """Queue a line. Never waits."""
        with self._wake:
            self._lines.append(line)
            self._size += len(line)
            if len(self._lines) == 1 or self._size > _GROUP_SIZE:
                self._wake.notify()

    def close(self) -> None:
        """Write and sync the queued lines, then close the file. May be called again."""
        with self._wake:
            self._ending = True
            self._wake.notify()
        self._thread.join()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write_groups(self) -> None:
        try:
            while lines := self._next_group():
                data = b"".join(lines)
                write_all(self._descriptor, data)
                self._sync(self._descriptor)
                self._durable += len(data)
                self._on_written(len(lines), None)
        except OSError as error:
            self._truncate_undurable()
            self._on_written(0, error)

    def _next_group(self) -> list[bytes]:
        """Return the lines of the next group; none at the end."""
        with self._wake:
            while not self._lines and not self._ending:
                self._wake.wait()
            self._wake.wait_for(lambda: self._ending or self._size > _GROUP_SIZE, self._gather)
            lines, self._lines, self._size = self._lines, [], 0
            return lines

    def _truncate_undurable(self) -> None:
        # after a failed sync the file may show bytes that are not on the disk, and they must not count later
        try:
            os.ftruncate(self._descriptor, self._durable)
            os.fsync(self._descriptor)
        except OSError:
            return


#: bytes of requests in one batch. The APIs accept 200 MB and more, but memory holds several copies of them
MAX_BATCH_SIZE: Final = 32 * 1024 * 1024
#: separates the token of a batch from the index of a row
_NAME_SEPARATOR: Final = "-"


def make_request_name(token: str, index: int) -> str:
    """Return the name of a row at the provider. `token` is that of its batch."""
    return f"{token}{_NAME_SEPARATOR}{index}"


class LabelStore:
    """The labels of rows in a temporary file: a million labels take 8 MB of memory."""

    def __init__(self, folder: Path) -> None:
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `close`
        self._places = array("q")
        self._end = 0

    def __contains__(self, index: int) -> bool:
        return index < len(self._places) and self._places[index] >= 0

    def put(self, index: int, label: str) -> None:
        """Store the label of a row. Rows come in ascending order."""
        self._places.extend([-1] * (index - len(self._places)))
        self._places.append(self._end)
        data = label.encode("utf-8", "surrogatepass")
        self._file.write(len(data).to_bytes(4, "big") + data)
        self._end += 4 + len(data)

    def get(self, index: int) -> str:
        """Return the label of a row."""
        self._file.seek(self._places[index])
        size = int.from_bytes(self._file.read(4), "big")
        label = self._file.read(size).decode("utf-8", "surrogatepass")
        self._file.seek(self._end)
        return label

    def close(self) -> None:
        """Delete the labels."""
        self._file.close()


class BatchBuilder:
    """The rows of the next batch: at most `most` requests and `room` bytes. `token` becomes its name."""

    def __init__(self, token: str, most: int, room: int) -> None:
        self.token = token
        self.rows: list[int] = []
        self.lines: list[bytes] = []
        self._most = most
        self._room = room
        self._size = 0

    def has_room(self, line: bytes) -> bool:
        """Whether another request fits. The first one always does."""
        return not self.rows or (len(self.rows) < self._most and self._size + len(line) <= self._room)

    def add(self, index: int, line: bytes) -> None:
        """Add the request of a row."""
        self.rows.append(index)
        self.lines.append(line)
        self._size += len(line)


class RowRanges:
    """Rows as ascending ranges, both ends included."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._ranges = ranges

    def __contains__(self, index: int) -> bool:
        at = bisect_right(self._ranges, (index, index))
        # the range that begins at this row, or the one before it
        return any(first <= index <= last for first, last in self._ranges[max(0, at - 1) : at + 1])


@dataclass(slots=True)
class Submission:
    """The rows of one batch. `token` identifies them at the provider, `rows` are ranges, both ends included.

    `batch` is the batch's identifier, None while it is unknown; `candidates` may be it. `at` is the
    time of its creation in seconds since the epoch.
    """

    token: str
    rows: tuple[tuple[int, int], ...]
    at: float
    batch: str | None = None
    candidates: tuple[str, ...] = ()
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = sum(last - first + 1 for first, last in self.rows)

    def __contains__(self, index: int) -> bool:
        return index in RowRanges(self.rows)

    def iter_indexes(self) -> Iterator[int]:
        """Yield the rows in order."""
        for first, last in self.rows:
            yield from range(first, last + 1)

    def parse_request_name(self, name: str) -> int | None:
        """Return the row with this name, None for an unknown name."""
        token, _, digits = name.partition(_NAME_SEPARATOR)
        if token != self.token or not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
            return None
        index = int(digits)
        return index if index in self and make_request_name(self.token, index) == name else None


class _SubmissionEntry(msgspec.Struct, omit_defaults=True):
    chunk: str
    rows: tuple[tuple[int, int], ...] | None = None
    at: float | None = None
    batch: str | None = None
    maybe: tuple[str, ...] | None = None
    end: Literal["done", "dropped"] | None = None


_ENTRY_DECODER: Final = msgspec.json.Decoder(_SubmissionEntry)


class SubmissionLog:
    """The file `OUTPUT.provider`, open for a run. `submissions` are the batches with incomplete results."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.submissions: dict[str, Submission] = {}
        end = 0
        for line, entry in _iter_entries(path):
            end += len(line)
            _apply_entry(self.submissions, entry)
        self._descriptor = os.open(path, APPEND_FLAGS, 0o666)
        # the end of an incomplete line: Onym had not acted on it
        os.ftruncate(self._descriptor, end)
        sync_folder(path.parent)

    def get_rows(self) -> RowRanges:
        """Return the rows of all batches."""
        return RowRanges(sorted(span for submission in self.submissions.values() for span in submission.rows))

    def record_plan(self, token: str, rows: Iterable[int], at: float) -> Submission:
        """Record that a batch is about to be created."""
        entry = _SubmissionEntry(chunk=token, rows=tuple(to_ranges(rows)), at=at)
        self._append_entry(entry)
        return self.submissions[token]

    def record_created(self, submission: Submission, batch: str) -> None:
        """Record the identifier of a created batch."""
        self._append_entry(_SubmissionEntry(chunk=submission.token, batch=batch))

    def record_candidates(self, submission: Submission, batches: tuple[str, ...]) -> None:
        """Record candidates for a batch that may have been created."""
        self._append_entry(_SubmissionEntry(chunk=submission.token, maybe=batches))

    def record_end(self, submission: Submission, ending: Literal["done", "dropped"]) -> None:
        """Record that all results are durable ("done"), or that the batch does not exist ("dropped")."""
        self._append_entry(_SubmissionEntry(chunk=submission.token, end=ending))

    def close(self) -> None:
        """Close the file, and delete it if no batch is open."""
        os.close(self._descriptor)
        if not self.submissions:
            self.path.unlink(missing_ok=True)

    def _append_entry(self, entry: _SubmissionEntry) -> None:
        write_all(self._descriptor, msgspec.json.encode(entry) + b"\n")
        sync_file(self._descriptor)
        _apply_entry(self.submissions, entry)


def get_submission_log_path(output: Path) -> Path:
    """Return the path of the log of an output."""
    return output.with_name(output.name + ".provider")


def require_no_open_batches(output: Path) -> None:
    """Raise UsageError if batches of this output are at the provider: their rows would be paid for twice."""
    submissions: dict[str, Submission] = {}
    for _, entry in _iter_entries(get_submission_log_path(output)):
        _apply_entry(submissions, entry)
    if submissions:
        raise UsageError(
            f"{sum(submission.count for submission in submissions.values())} rows of this output are in "
            "batches at the provider and will be billed",
            code="usage.batch-at-provider",
            hint="Continue with --provider-batch, or cancel them first with --provider-batch --cancel.",
        )


def to_ranges(indexes: Iterable[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as ranges, both ends included."""
    ranges: list[tuple[int, int]] = []
    for index in indexes:
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1] = (ranges[-1][0], index)
        else:
            ranges.append((index, index))
    return ranges


def _iter_entries(path: Path) -> Iterator[tuple[bytes, _SubmissionEntry]]:
    """Yield the complete lines. Raises UsageError if one before the last is invalid."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return
    for line in lines:
        if not line.endswith(b"\n"):
            return
        try:
            yield line, _ENTRY_DECODER.decode(line)
        except msgspec.MsgspecError:
            raise UsageError(
                f"{path} is damaged, so Onym cannot tell which rows are at the provider",
                code="usage.batch-ledger",
                hint="Repair the file, or delete it when no batch of this output is left at the provider.",
            ) from None


def _apply_entry(submissions: dict[str, Submission], entry: _SubmissionEntry) -> None:
    if entry.rows is not None:
        submissions[entry.chunk] = Submission(entry.chunk, entry.rows, entry.at or 0.0)
        return
    submission = submissions.get(entry.chunk)
    if submission is None:
        return
    if entry.end is not None:
        del submissions[entry.chunk]
    elif entry.batch is not None:
        submission.batch, submission.candidates = entry.batch, ()
    elif entry.maybe is not None:
        submission.candidates = entry.maybe
