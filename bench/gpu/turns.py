"""Runs a program that stays loaded and answers each line of its input with a line of JSON, such as peers.py."""

import ctypes
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time


class Failed(Exception):
    pass


LIBC = ctypes.CDLL(None)  # loaded before any child starts
PR_SET_PDEATHSIG = 1


def end_with_parent():
    """Called in a child before its program starts: the kernel then kills the program when the suite ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Turns:
    def __init__(self, *command, seconds):
        """Starts the command and waits up to `seconds` for its first line, `settings`. Raises Failed."""
        self.errors = tempfile.TemporaryFile()
        self.rest = b""
        try:
            self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True,
                                            preexec_fn=end_with_parent)
        except OSError as error:
            self.errors.close()
            raise Failed(str(error)) from error
        self.settings = self.answer(seconds)

    def __call__(self, line, seconds):
        try:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
        except OSError:
            pass  # the program has ended; answer() raises Failed with its stderr
        return self.answer(seconds)

    def answer(self, seconds):
        """The next line of JSON; skips other lines. Raises Failed if the program ends or `seconds` are over."""
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                *lines, self.rest = self.rest.split(b"\n")
                for k, line in enumerate(lines):
                    if line.startswith(b"{"):
                        self.rest = b"\n".join([*lines[k + 1 :], self.rest])
                        return json.loads(line)
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise Failed(f"no answer in {seconds:.0f} s; {self.close()}")
                more = os.read(self.process.stdout.fileno(), 1 << 16)
                if not more:
                    raise Failed(self.close())
                self.rest += more

    def close(self):
        """Kills the program and its children. Returns the end of its stderr."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        if not self.errors.closed:
            self.errors.seek(0)
            said = self.errors.read().decode(errors="replace")[-800:]
            self.errors.close()
            self.process.stdin.close()
            self.process.stdout.close()
            return said
        return ""
