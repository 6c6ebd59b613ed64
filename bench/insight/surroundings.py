"""What surrounds a run: busy programs, a CPU quota, a slow disk, storage with latency. Each undoes itself at the end.

Quota and disk need root. The quota works with cgroup v1 and v2, the disk only with v1, because v2 has no limits for the root.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PERIOD_US = 100_000
DISK_BYTES = 512 << 20
# Ends by itself if the script is killed.
HOG = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(1_000_000):\n        pass\n"
# Delays each open() of a picture for reading, as storage on a network does. Overlays are opened for writing.
LATENCY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static void delay(const char* path, int flags) {
  const char* seconds = getenv("INSIGHT_LATENCY_S");
  const size_t length = strlen(path);
  if (!seconds || (flags & O_ACCMODE) != O_RDONLY || length < 4 || strcmp(path + length - 4, ".jpg") != 0) return;
  const double s = atof(seconds);
  struct timespec left = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
  while (nanosleep(&left, &left) != 0) {
  }
}
#define WRAPPED(name)                                          \
  int name(const char* path, int flags, ...) {                 \
    va_list more;                                              \
    va_start(more, flags);                                     \
    const int mode = flags & O_CREAT ? va_arg(more, int) : 0;  \
    va_end(more);                                              \
    delay(path, flags);                                        \
    return ((int (*)(const char*, int, int))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
  }
WRAPPED(open)
WRAPPED(open64)
"""


def exit_on_signals():
    """Ctrl-C and SIGTERM then undo everything, because they end the script with an exception."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def command(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()


def machine_busy_s():
    """Seconds that all programs of the machine have computed."""
    user, nice, system, _, _, irq, softirq = Path("/proc/stat").read_text(encoding="utf-8").split()[1:8]
    return sum(map(int, (user, nice, system, irq, softirq))) * TICK_S


class Hogs:
    """Programs that only compute. `cores_since` says how many cores they had."""

    def __init__(self, count, nice, cores):
        def start():
            os.sched_setaffinity(0, cores)
            os.nice(nice)

        self.processes = [subprocess.Popen([sys.executable, "-c", HOG], preexec_fn=start) for _ in range(count)]
        self.samples = []
        self.ended = threading.Event()
        self.sampler = threading.Thread(target=self.sample, daemon=True)
        self.sampler.start()

    def sample(self):
        while not self.ended.wait(0.1):
            with contextlib.suppress(OSError):
                self.samples.append((time.monotonic(), self.all_cpu_s()))

    def all_cpu_s(self):
        return sum(self.cpu_s(process.pid) for process in self.processes)

    @staticmethod
    def cpu_s(pid):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S

    def cores_since(self, begin):
        """Their mean number of cores from `begin` (of time.monotonic) until now."""
        chosen = [sample for sample in self.samples if sample[0] >= begin]
        if len(chosen) < 2:
            return None
        (first, cpu_first), (last, cpu_last) = chosen[0], chosen[-1]
        return (cpu_last - cpu_first) / (last - first)

    def end(self):
        self.ended.set()
        self.sampler.join()
        for process in self.processes:
            process.kill()
            process.wait()


class Quota:
    """A cgroup whose processes together get at most `cores` cores. `join` is for the process itself, before it executes."""

    def __init__(self, cores):
        v1 = CGROUPS / "cpu"
        self.folder = (v1 if v1.is_dir() else CGROUPS) / "millrace-insight"
        self.folder.mkdir(exist_ok=True)
        try:
            if v1.is_dir():
                (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (self.folder / "cpu.cfs_quota_us").write_text(str(round(cores * PERIOD_US)))
            else:
                (self.folder / "cpu.max").write_text(f"{round(cores * PERIOD_US)} {PERIOD_US}")
        except BaseException:  # Ctrl-C too
            self.end()
            raise

    def join(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def end(self):
        for _ in range(50):  # the kernel needs a moment to forget the processes
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.1)
        print(f"real.py: could not remove {self.folder}; remove it with rmdir", file=sys.stderr)


class SlowDisk:
    """A file system in a file. The limits apply to this disk only, so they slow down nothing else."""

    def __init__(self, work):
        self.image, self.folder = work / "disk.img", work / "disk"
        self.device, self.limits = "", {}
        with self.image.open("wb") as file:
            file.truncate(DISK_BYTES)
        self.folder.mkdir(exist_ok=True)
        try:
            command("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.image)
            self.device = command("losetup", "--find", "--show", self.image)
            command("mount", "-o", "noatime", self.device, self.folder)
        except BaseException:  # Ctrl-C too
            self.end()
            raise

    def slow_down(self, limits, write_through):
        """Limits such as {"read_bps": 5_000_000}. Mounts the disk again, so that no page is cached."""
        self.free()
        command("sync", "-f", self.folder)
        command("umount", self.folder)
        command("mount", "-o", "noatime,sync" if write_through else "noatime", self.device, self.folder)
        self.limits = limits
        self.write_limits(limits)

    def free(self):
        self.write_limits(dict.fromkeys(self.limits, 0))  # 0: no limit

    def write_limits(self, limits):
        if not limits:
            return
        status = os.stat(self.device)
        name = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        for limit, value in limits.items():
            (CGROUPS / f"blkio/blkio.throttle.{limit}_device").write_text(f"{name} {round(value)}\n")

    def end(self):
        self.free()
        if os.path.ismount(self.folder):
            command("umount", self.folder)
        if self.device:
            command("losetup", "--detach", self.device)
        self.image.unlink(missing_ok=True)
        self.folder.rmdir()


def latency_library(work):
    """Compiles the library for LD_PRELOAD."""
    source, library = work / "latency.c", work / "latency.so"
    source.write_text(LATENCY, encoding="utf-8")
    command("gcc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl")
    return library


def why_not_root(needs_quota, needs_disk):
    """Why this machine cannot have a quota or a slow disk; empty if it can."""
    if os.geteuid() != 0:
        return "needs root"
    v1, v2 = CGROUPS / "cpu/cpu.cfs_quota_us", CGROUPS / "cgroup.controllers"
    if needs_quota and not (v1.exists() or (v2.exists() and "cpu" in v2.read_text(encoding="utf-8").split())):
        return "no cgroup limits CPU time here"
    if needs_disk and not (CGROUPS / "blkio/blkio.throttle.read_bps_device").exists():
        return "needs cgroup v1 with the controller blkio"
    return ""
