"""The device, repeats and deadline of the suite, its commands, and a description of the machine."""

import os
import platform
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from processor import processor
from turns import end_with_parent

BUNDLE = Path(os.environ["MILLRACE_BUNDLE"])
MODELS = BUNDLE / "share/millrace/models"


class OutOfTime(Exception):
    """The part's time is up. The next call makes this measurement."""


class Session:
    """The device and the deadline: a GPU, or with few repeats a device for rehearsals."""

    device, two_devices, torch_device, gpu = "cuda", "cuda:0,0", "cuda", True
    rehearsal = None  # "cpu" or "cuda"
    short = False  # leaves out what costs the most time
    deadline = float("inf")  # of the part, by time.monotonic()

    @classmethod
    def rehearse(cls, where):
        cls.rehearsal = where
        if where == "cpu":
            cls.device, cls.two_devices, cls.torch_device, cls.gpu = "fake:1", "fake:2", "cpu", False

    @classmethod
    def few(cls, many, few):
        return few if cls.rehearsal else many


def run(*command, timeout=400, env=None):
    """Runs a command, and returns its result and its seconds.

    A command that does not exist or exceeds `timeout` has failed like any other.
    At the part's deadline, the command and its children are killed: raises OutOfTime.
    """
    begun = time.monotonic()
    timeout = min(timeout, Session.deadline - begun)
    if timeout <= 0:
        raise OutOfTime
    words = [str(part) for part in command]
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **libraries(words), **(env or {})},
                                   start_new_session=True, preexec_fn=end_with_parent)
    except OSError as error:
        return subprocess.CompletedProcess(words, 127, "", str(error)), 0.0
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        if time.monotonic() >= Session.deadline:
            raise OutOfTime from None
        err += f"\nkilled after {timeout:.0f} s"
    return subprocess.CompletedProcess(words, process.returncode, out, err), time.monotonic() - begun


def libraries(words):
    """The environment in which the bundle's programs find its libraries. Other programs must not use these."""
    path = os.environ.get("MILLRACE_LIBRARY_PATH")
    ours = any(word.startswith(str(BUNDLE / "bin")) for word in words)
    return {"LD_LIBRARY_PATH": ":".join(filter(None, (path, os.environ.get("LD_LIBRARY_PATH"))))} if path and ours else {}


def commit():
    first, *rest = (BUNDLE / "commit").read_text().split("\n")
    return first + ("-dirty" if "with changes" in rest else "")


def scratch():
    """A temporary folder, in memory if at least 8 GiB are free there: enough for the results of a run."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= 8 << 30
    return tempfile.TemporaryDirectory(dir=memory if roomy else None)


def machine():
    import torch

    host = {"torch": torch.__version__, **processor(), "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "commit": commit()}
    if not Session.gpu:
        return {"gpu": "none: a rehearsal", **host}
    gpu = torch.cuda.get_device_properties(0)
    driver, _ = run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {"gpu": f"none: a rehearsal on {gpu.name}" if Session.rehearsal else gpu.name, "multiprocessors": gpu.multi_processor_count, "memory_bytes": gpu.total_memory, "driver": driver.stdout.strip(), **host}
