"""A program that stays loaded and does its work in turns: peers.py, and what else answers each line of its input with one of JSON."""

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


LIBC = ctypes.CDLL(None)  # loaded before there is a child
PR_SET_PDEATHSIG = 1


def end_with_parent():
    """In a child, before it becomes its program: what measures can be killed, and leaves nobody at work."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Turns:
    def __init__(self, *command, seconds):
        """Waits for its first line, `settings`, for so many seconds."""
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
            pass  # it has ended, and says why on stderr
        return self.answer(seconds)

    def answer(self, seconds):
        """The next line of JSON; other lines are its chatter."""
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
        """Ends it with all that it started; the end of what it said on stderr."""
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
