"""Record the terminal sessions of the documentation: docs/assets/terminal/NAME.svg and NAME-narrow.svg.

    .venv/bin/python docs/tools/record_terminal.py [NAME ...]

Bash runs in a pseudo-terminal, in an empty home. Its commands are typed as a person does, and what appears
is kept with its time. pyte, a terminal emulator, says what the screen shows. The picture is an SVG that CSS
animates: each text is there once, with the times at which it appears and is gone. It plays once and then
shows the last screen, as it does without motion. docs/decisions/0064-terminal-recordings.md has the reasons.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pyte

sys.path.insert(0, str(Path(__file__).resolve().parent))

from docgen.drawing import BLUE, FAINT, GREEN, INK, ORANGE, RED, TEAL, VIOLET, frame
from docgen.examples import clean_environment
from docgen.paths import DOCS, ROOT

FOLDER = DOCS / "assets" / "terminal"


class Recording(NamedTuple):
    """What is typed. `checkout` gives the home a fresh copy of the last commit, as a new user has it.

    `seconds` is the longest time that the film plays.
    """

    commands: tuple[str, ...]
    title: str
    checkout: bool = False
    seconds: float = 20.0


class Layout(NamedTuple):
    """Columns and rows of the terminal; width of a character, height of a line, margin and font in pixels."""

    columns: int
    rows: int
    cell: float
    line: float
    margin: float
    font: float


class Output(NamedTuple):
    """What appeared at a time, and whether a person typed it."""

    seconds: float
    data: bytes
    typed: bool


class Text(NamedTuple):
    """One line while it stays the same: its row from the beginning of the session, and its coloured runs."""

    row: int
    start: float
    end: float | None
    runs: tuple[tuple[str, str], ...]


class Film(NamedTuple):
    """All texts, where the window begins and the cursor is at each time, and the time of the last change."""

    texts: list[Text]
    tops: list[tuple[float, int]]
    cursors: list[tuple[float, int, int]]
    end: float

    def last_lines(self) -> list[str]:
        """What the last screen says, without its empty lines."""
        last = sorted(text for text in self.texts if text.end is None and text.row >= self.tops[-1][1])
        return ["".join(piece for piece, _ in text.runs) for text in last]


RECORDINGS: Final[Mapping[str, Recording]] = {
    # GitHub shows it without a button: what moves by itself may do so for five seconds (WCAG 2.2.2)
    "make-run": Recording(
        ("make run",), "make run: one prompt to a model on this computer", checkout=True, seconds=5.0
    ),
    "check": Recording(
        (
            "onym check 'llm://ollama/llama3:8b?temperature=0.2'",
            "onym check 'llm://ollama/llama3%3A8b?temp=0.2'",
            "onym check 'llm://openai/gpt-5.4?top_k=40'",
        ),
        "onym check: mistakes in URIs, and their corrections",
    ),
    "demo-ai": Recording(("make demo-ai",), "make demo-ai: publish, call, approve and verify"),
}
LAYOUTS: Final[Mapping[str, Layout]] = {
    "": Layout(columns=80, rows=24, cell=8.43, line=19, margin=16, font=14),
    "-narrow": Layout(columns=48, rows=28, cell=7.05, line=16, margin=10, font=11.7),
}
#: seconds: the longest pause that is kept, all output of a film, a key, the shortest screen
PAUSE, OUTPUT, KEY, STEP = 1.0, 14.0, 0.045, 0.05
#: a command may take so long
PATIENCE = 900
#: every time in a recording has this date
DATE = b"2026-01-01"
#: what the prompt begins with: the mark for terminals "a prompt is here"
_MARK = b"\x1b]133;A\x07"
#: how packages are reached from here
_PACKAGES = ("PIP_", "UV_", "SSL_CERT", "NODE_EXTRA_CA", "npm_config_")
#: pyte's colours -> those of the pictures
_COLOURS = {
    "red": RED,
    "green": GREEN,
    "brown": ORANGE,
    "blue": BLUE,
    "magenta": VIOLET,
    "cyan": TEAL,
    "brightblack": FAINT,
    # bars of progress: what is there, what is missing, all of it
    "ff005f": VIOLET,
    "3a3a3a": "var(--edge)",
    "5faf00": GREEN,
}
_STYLE = (
    "svg{--panel:#f9fafb;--bar:#eceff3;--edge:#cfd6df}"
    "@media (prefers-color-scheme:dark){svg{--panel:#11151c;--bar:#1c222c;--edge:#3a4352}}"
    ".bold{font-weight:bold}.gone{opacity:0}"
    + "".join(f".c-{name}{{fill:{colour}}}" for name, colour in _COLOURS.items())
)
#: Chromium tells a picture in a page of the reader's theme, not of reduced motion: see docs/assets/site.js
_STILL = (
    "@media (prefers-reduced-motion:reduce){.m{animation:none}}#still:target .m{animation:none!important}"
)
#: the height of the bar above the screen
_BAR = 30


# -- record ----------------------------------------------------------------------------------------


def record_session(
    commands: Iterable[str], layout: Layout, home: Path, folder: Path, key_seconds: float, **variables: str
) -> list[Output]:
    """Type the commands into a shell in `folder`, and return what appears until the last prompt."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", layout.rows, layout.columns, 0, 0))
    # no history of this computer, and no width but the terminal's
    environment = clean_environment(str(home)) | variables
    del environment["COLUMNS"]
    environment |= {
        # a green prompt, then what is typed in bold, until it runs
        "PS1": r"\[\e]133;A\a\e[32m\]$ \[\e[39;1m\]",
        "PS0": r"\e[0m",
        "TERM": "xterm-256color",
        "INPUTRC": os.devnull,
    }
    shell = subprocess.Popen(
        ["setsid", "--ctty", "bash", "--noprofile", "--norc", "-i"],
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen: list[Output] = []
    try:
        _read_output(ours, seen, prompts=1)
        for prompts, command in enumerate(commands, 2):
            _read_output(ours, seen, seconds=key_seconds * 15)
            for key in command:
                os.write(ours, key.encode())
                _read_output(ours, seen, seconds=key_seconds, typed=True)
            _read_output(ours, seen, seconds=key_seconds * 8)
            os.write(ours, b"\r")
            _read_output(ours, seen, prompts=prompts)
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
    return list(_hide_computer(seen, home))


def _read_output(
    terminal: int, seen: list[Output], *, prompts: int = 0, seconds: float = PATIENCE, typed: bool = False
) -> None:
    """Collect output for so many seconds, or until there were so many prompts."""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            seen.append(Output(time.monotonic(), os.read(terminal, 65536), typed))
        if prompts and sum(output.data.count(_MARK) for output in seen) >= prompts:
            return
    if prompts:
        raise TimeoutError(f"no prompt after {seconds} seconds")


def _hide_computer(seen: Iterable[Output], home: Path) -> Iterator[Output]:
    """The output without this computer's folders and today's date; faint text as pyte knows it."""
    kept, path = b"", str(home).encode()
    for seconds, data, typed in seen:
        data = (kept + data).replace(path, b"~").replace(b"\x1b[2m", b"\x1b[90m")
        data = re.sub(rb"20\d\d-\d\d-\d\d(?=[ T]\d\d:\d\d)", DATE, data)
        # the beginning of the path may be at the end of what was read
        held = next((length for length in range(len(path) - 1, 0, -1) if data.endswith(path[:length])), 0)
        kept = data[len(data) - held :]
        yield Output(seconds, data[: len(data) - held], typed)


# -- play ------------------------------------------------------------------------------------------


def shorten_waits(seen: list[Output]) -> list[Output]:
    """The output in the times of the film: from 0, without long pauses, in steps that a person can see."""
    gaps = [min(PAUSE, later.seconds - output.seconds) for output, later in pairwise(seen)]
    waits = sum(gap for gap, output in zip(gaps, seen[1:], strict=True) if not output.typed)
    speed = min(1.0, OUTPUT / waits) if waits else 1.0
    now, film = 0.0, [Output(0.0, seen[0].data, typed=False)]
    for gap, output in zip(gaps, seen[1:], strict=True):
        now += gap if output.typed else gap * speed
        if now - film[-1].seconds < STEP and not output.typed:
            film[-1] = film[-1]._replace(data=film[-1].data + output.data)
        else:
            film.append(Output(now, output.data, output.typed))
    return film


def emulate_terminal(outputs: Iterable[Output], layout: Layout) -> Film:
    """What a terminal shows of it."""
    screen = pyte.HistoryScreen(layout.columns, layout.rows, history=100_000)
    stream = pyte.ByteStream(screen)
    shown: dict[int, tuple[float, tuple[tuple[str, str], ...]]] = {}
    film = Film([], [], [], 0.0)
    before = 0
    for seconds, data, _ in outputs:
        stream.feed(data)
        top = len(screen.history.top)
        lines = {row: screen.history.top[row] for row in range(before, top)}
        lines |= {top + row: screen.buffer[row] for row in range(layout.rows)}
        for row, line in lines.items():
            runs = _split_runs(line, layout.columns)
            start, old = shown.get(row, (0.0, ()))
            if runs != old:
                if old:
                    film.texts.append(Text(row, start, seconds, old))
                shown[row] = (seconds, runs)
        if not film.tops or film.tops[-1][1] != top:
            film.tops.append((seconds, top))
        # a hidden cursor is beyond the edge
        column = -2 if screen.cursor.hidden else min(screen.cursor.x, layout.columns - 1)
        film.cursors.append((seconds, column, top + screen.cursor.y))
        film, before = film._replace(end=seconds), top
    film.texts.extend(Text(row, start, None, runs) for row, (start, runs) in shown.items() if runs)
    return film


def _split_runs(line: Mapping[int, Any], columns: int) -> tuple[tuple[str, str], ...]:
    """The text of a line in pieces of one style: the name of a colour, and `bold`."""
    cells = [line[column] for column in range(columns)]
    while cells and not cells[-1].data.strip():
        cells.pop()
    styled = ((f"{cell.fg} bold" if cell.bold else cell.fg, cell.data) for cell in cells)
    return tuple(
        ("".join(data for _, data in run), style) for style, run in groupby(styled, key=lambda cell: cell[0])
    )


def wrap_lines(text: str, columns: int) -> list[str]:
    """The lines of `text` as a terminal of this width breaks them, without the empty ones."""
    layout = Layout(columns, rows=100, cell=1, line=1, margin=1, font=1)
    return emulate_terminal(
        [Output(0.0, text.replace("\n", "\r\n").encode(), typed=False)], layout
    ).last_lines()


# -- draw ------------------------------------------------------------------------------------------


def draw_film(film: Film, recording: Recording, layout: Layout) -> str:
    """The picture, as SVG text."""
    whole = film.end + STEP
    rows = min(layout.rows, max(row for _, _, row in film.cursors) + 1)
    width = round(layout.columns * layout.cell + 2 * layout.margin)
    height = round(_BAR + rows * layout.line + 2 * layout.margin)
    scrolls = [(time, f"transform:translateY({-top * layout.line:g}px)") for time, top in film.tops]
    cursors = [
        (time, f"transform:translate({column * layout.cell:.1f}px,{row * layout.line:g}px)")
        for time, column, row in film.cursors
    ]
    rules = [_write_keyframes("scroll", scrolls, whole), _write_keyframes("cursor", cursors, whole)]
    texts = []
    by_time = sorted(film.texts, key=lambda text: (text.start, text.end or whole, text.row))
    for number, ((start, end), group) in enumerate(groupby(by_time, key=lambda text: (text.start, text.end))):
        times = [(0.0, "opacity:0"), (start, "opacity:1"), *([] if end is None else [(end, "opacity:0")])]
        rules.append(_write_keyframes(f"t{number}", times, whole))
        texts.append(f'<g class="m{"" if end is None else " gone"}" style="animation-name:t{number}">')
        texts += [*(_draw_text(text, layout) for text in group), "</g>"]
    edge = f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"'
    lines = [
        f"<style>{_STYLE}{''.join(rules)}.m{{animation:{min(whole, recording.seconds):.2f}s step-end both}}",
        f"text{{font-size:{layout.font}px;white-space:pre;fill:{INK}}}{_STILL}</style>",
        '<g id="still">',
        f'{edge} fill="var(--panel)"/>',
        f'<path d="M.5 {_BAR}V8.5a8 8 0 0 1 8-8H{width - 8.5}a8 8 0 0 1 8 8V{_BAR}z" fill="var(--bar)"/>',
        *(f'<circle cx="{18 + 18 * number}" cy="15.5" r="5" fill="var(--edge)"/>' for number in range(3)),
        f'{edge} fill="none" stroke="var(--edge)"/>',
        f'<svg x="{layout.margin}" y="{_BAR + layout.margin}" height="{rows * layout.line:g}">',
        f'<g class="m" style="animation-name:scroll;{scrolls[-1][1]}">',
        *texts,
        f'<rect class="m" style="animation-name:cursor;{cursors[-1][1]}"',
        f'y="1" width="{layout.cell}" height="{layout.line - 3:g}" fill="{INK}"/>',
        "</g></svg></g>",
    ]
    described = "A terminal. At the end it shows:\n" + "\n".join(film.last_lines())
    return frame(width, height, recording.title, described, lines)


def _write_keyframes(name: str, moments: Iterable[tuple[float, str]], whole: float) -> str:
    """An animation; `moments` are times in seconds and what is so from then on."""
    return f"@keyframes {name}{{{''.join(f'{100 * at / whole:.2f}%{{{rule}}}' for at, rule in moments)}}}"


def _draw_text(text: Text, layout: Layout) -> str:
    """One line. It has the same length in every font."""
    length = sum(len(piece) for piece, _ in text.runs) * layout.cell
    pieces = "".join(
        escape(piece) if style == "default" else f'<tspan class="c-{style}">{escape(piece)}</tspan>'
        for piece, style in text.runs
    )
    y = (text.row + 0.76) * layout.line
    return f'<text y="{y:.1f}" textLength="{length:.1f}" xml:space="preserve">{pieces}</text>'


def read_last_lines(svg: str) -> list[str]:
    """The lines that a picture shows at its end, without the empty ones."""
    space = "{http://www.w3.org/2000/svg}"
    window = ET.fromstring(svg).find(f"{space}g/{space}svg")
    assert window is not None
    scrolled = window[0]
    top = float(re.findall(r"translateY\(-?([\d.]+)px\)", scrolled.get("style", ""))[0])
    last = [
        text
        for group in scrolled.findall(f"{space}g")
        if group.get("class") == "m"
        for text in group
        if float(text.get("y", "")) > top
    ]
    return ["".join(text.itertext()) for text in sorted(last, key=lambda text: float(text.get("y", "")))]


# -- all of them -----------------------------------------------------------------------------------


def record_film(recording: Recording, layout: Layout, key_seconds: float = KEY) -> Film:
    """Run one session in a home of its own, and return its film."""
    variables = {name: value for name, value in os.environ.items() if name.startswith(_PACKAGES)}
    with tempfile.TemporaryDirectory(prefix="onym-") as name:
        home = folder = Path(name)
        if recording.checkout:
            folder = home / "onym"
            folder.mkdir()
            files = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
            subprocess.run(["tar", "-x"], cwd=folder, input=files.stdout, check=True)
        else:  # what `make test` installs, and its model, are there
            folder = ROOT
            (home / ".cache").mkdir()
            (home / ".cache" / "onym").symlink_to(Path.home() / ".cache" / "onym")
        variables["TMPDIR"] = name
        seen = record_session(recording.commands, layout, home, folder, key_seconds, **variables)
    return emulate_terminal(shorten_waits(seen), layout)


def main(names: list[str]) -> None:
    """Record the named sessions, or all of them."""
    subprocess.run(["make", "--silent", ".venv/.test"], cwd=ROOT, check=True)
    FOLDER.mkdir(exist_ok=True)
    for name in names or RECORDINGS:
        for suffix, layout in LAYOUTS.items():
            recording, target = RECORDINGS[name], FOLDER / f"{name}{suffix}.svg"
            target.write_text(draw_film(record_film(recording, layout), recording, layout), encoding="utf-8")
            print("recorded", target.name)


if __name__ == "__main__":
    main(sys.argv[1:])
