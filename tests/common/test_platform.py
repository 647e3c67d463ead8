"""What differs between operating systems, and the rule that only one module knows it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import onym
from onym.common import platform

_SOURCE = Path(onym.__file__).parent
_SPECIAL = {
    *(
        "_winapi",
        "crypt",
        "curses",
        "fcntl",
        "grp",
        "msvcrt",
        "nis",
        "nt",
        "ossaudiodev",
        "posix",
        "pty",
        "pwd",
    ),
    *("readline", "resource", "spwd", "syslog", "termios", "tty", "winreg", "winsound"),
}
#: modules that other areas have yet to move to `onym.common.platform`; the list may only become shorter
_STILL_THERE = {
    "cli/commands/chat.py",
    "llm/cache/_store.py",
    "llm/embedded.py",
    "server/registry/_check_child.py",
}


def list_imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "import_module",
            "__import__",
        ):
            names |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return names


def test_no_other_module_imports_what_only_one_system_has() -> None:
    found = {
        path.relative_to(_SOURCE).as_posix()
        for path in _SOURCE.rglob("*.py")
        if _SPECIAL & list_imports(path)
    }
    assert found - {"common/platform.py"} <= _STILL_THERE


def test_owner_and_mode_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert platform.is_owned_by_user(path.stat())
    for mode, is_open, is_writable in ((0o600, False, False), (0o640, True, False), (0o602, True, True)):
        path.chmod(mode)
        assert platform.is_open_to_others(path.stat()) is is_open
        assert platform.is_writable_by_others(path.stat()) is is_writable


def test_bytes_of_a_file_are_locked_apart(tmp_path: Path) -> None:
    code = (
        "import os, sys; from onym.common.platform import try_lock_byte;"
        "file = os.open(sys.argv[1], os.O_RDWR); print(try_lock_byte(file, 3), try_lock_byte(file, 4))"
    )
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        assert platform.try_lock_byte(descriptor, 3)

        def try_elsewhere() -> str:
            return subprocess.check_output([sys.executable, "-c", code, tmp_path / "file"], text=True)

        assert try_elsewhere() == "False True\n"
        platform.unlock_byte(descriptor, 3)
        assert try_elsewhere() == "True True\n"
    finally:
        os.close(descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is measured with Linux's rules")
def test_a_process_limits_itself() -> None:
    code = (
        "from onym.common.platform import limit_process; limit_process(memory=2**28, niceness=1)\n"
        "try: bytearray(2**29)\nexcept MemoryError: print('limited')"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "limited\n"
