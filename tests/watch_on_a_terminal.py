"""Runs `PROGRAM status --watch --socket SOCKET` on a separate terminal and checks every byte of its output.

The terminal is narrow, then wide, then narrow again; then Ctrl-C is typed. Ends with 0 if all went well."""

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time

program, socket = sys.argv[1:3]
LIMIT = 30


def size(fd, columns, lines):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def read(fd, seen, is_so, what):
    """Reads on until it is so."""
    end = time.monotonic() + LIMIT
    while not is_so(bytes(seen)):
        assert time.monotonic() < end, f"{what} never came: {bytes(seen)!r}"
        if select.select([fd], [], [], 0.2)[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:  # The other side is closed.
                assert is_so(bytes(seen)), f"{what} never came: {bytes(seen)!r}"


def frames(seen):
    """The frames that are whole: each begins at the top left, where the one before is left standing."""
    return seen.decode().split("\x1b[H")[1:]


def widest(frame):
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame).replace("\r", "").split("\n")
    assert len(lines) <= 24, f"{len(lines)} lines: {frame!r}"
    return max(len(line) for line in lines)


pid, terminal = pty.fork()
if pid == 0:
    # The terminal has its size before anything is drawn.
    time.sleep(0.3)
    os.execve(program, [program, "status", "--watch", "--socket", socket], {"TERM": "xterm-256color", "PATH": "/usr/bin"})
size(terminal, 60, 24)
before = termios.tcgetattr(terminal)
seen = bytearray()
read(terminal, seen, lambda seen: len(frames(seen)) >= 2 and seen.endswith(b"\x1b[J"), "a narrow frame")
narrow = frames(bytes(seen))
assert seen.startswith(b"\x1b[?1049h\x1b[?25l"), f"not the alternate screen without a cursor: {bytes(seen)!r}"
assert all(widest(frame) <= 60 for frame in narrow), narrow
assert any(widest(frame) == 60 for frame in narrow), "nothing had to be cut: the test shows nothing"

for columns in (200, 60):
    there = len(seen)
    drawn = time.monotonic()
    size(terminal, columns, 24)
    read(terminal, seen, lambda seen: seen[there:].endswith(b"\x1b[J"), "a frame of the new size")
    assert time.monotonic() - drawn < 1.5, "it is drawn again at once, not when the next one is due"
    last = frames(bytes(seen))[-1]
    assert (widest(last) > 60) == (columns > 60), last

# Nothing is erased before it is drawn over, and nothing scrolls.
assert b"\x1b[2J" not in seen and b"\x1bc" not in seen, bytes(seen)
os.write(terminal, b"\x03")
read(terminal, seen, lambda seen: seen.endswith(b"\x1b[?25h\x1b[?1049l"), "the old screen")
assert termios.tcgetattr(terminal) == before, "the terminal is not as it was"
status = os.waitpid(pid, 0)[1]
assert os.waitstatus_to_exitcode(status) == 0, status
