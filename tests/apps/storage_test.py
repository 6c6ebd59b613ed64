"""Storage errors and limits of the system, through the real program.

The labels S1 to S17 and P5 to P9 group the faults.

In each case one message names the place and what to do, the exit code is right, and committed results are correct.
The same command finishes the rest, with the bytes of an undisturbed run.
"""

import os
import shutil
import subprocess
import unittest

import program
from program import ENVIRONMENT, MISMATCH, OK, SOME_FAILED, STORAGE

COUNT = 60


def shell_quoted(command):
    return " ".join("'" + str(part).replace("'", "'\\''") + "'" for part in command)


class StorageCase(program.Case):
    """60 small pictures, one of them broken; `reference` is what an undisturbed run writes."""

    def setUp(self):
        super().setUp()
        self.recipe = self.write("decode.yaml", program.DECODE_ONLY)
        self.input = program.write_pictures(self.folder / "in", COUNT)
        (self.input / "0007.jpg").write_bytes(b"<html>")
        self.output = self.folder / "out"

    def command(self, *more, output=None):
        return [program.PROGRAM, "run", self.recipe, "--input", self.input, "--output", output or self.output, "-q", *more]

    def run_under(self, prefix, *more, output=None):
        done = subprocess.run([*prefix, *self.command(*more, output=output)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                              errors="replace", timeout=120)
        return program.Finished(done.returncode, done.stdout, done.stderr)

    def run_injected(self, fault, *more, path=None):
        """Runs under strace, which injects `fault` into system calls, on `path` only if given."""
        done = self.run_under(self.injecting(fault, path), *more)
        if "ptrace" in done.err and "not permitted" in done.err:
            self.skipTest("this machine does not allow ptrace")
        return done

    def run_mounted(self, options, setup="", *more):
        """Runs with a small tmpfs for the output in a mount namespace of its own, then copies the output out of it."""
        if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("mounting needs root and mount namespaces")
        self.output.mkdir()
        keep = self.folder / "kept"
        command = shell_quoted(self.command(*more))
        script = f"mount -t tmpfs -o {options} none '{self.output}' || exit 99; {setup}\n{command}; code=$?; cp -r '{self.output}' '{keep}'; exit $code"
        done = subprocess.run(["unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
        if done.returncode == 99:
            self.skipTest("this machine does not allow mounts")
        self.output.rmdir()
        if keep.exists():
            keep.rename(self.output)
        return program.Finished(done.returncode, done.stdout, done.stderr)

    def check_stopped(self, done, *says, code=STORAGE):
        """Checks that the last line is a message that contains `says`, and the exit code."""
        self.assertEqual(done.code, code, done)
        message = done.err.strip().splitlines()[-1]
        self.assertTrue(message.startswith("millrace: "), message)
        for part in says:
            self.assertIn(part, message)

    def check_resumes(self, *more):
        """Checks that the same command finishes the rest: no temporary files, and the bytes of an undisturbed run."""
        self.run_ok(*self.command(*more)[2:], code=SOME_FAILED)
        reference = self.folder / "reference"
        if not reference.exists():
            self.run_ok(*self.command(*more, output=reference)[2:], code=SOME_FAILED)
        self.assertEqual(program.segments(self.output), program.segments(reference))
        for side in ("overlay", "labels"):
            self.assertEqual(program.tree(self.output / side), program.tree(reference / side))
        self.assertEqual([f for f in self.output.rglob(".tmp-*")], [])
        self.assertEqual(len(program.lines(self.output)), COUNT)


class FullDisks(StorageCase):
    """S1, S2, S17: no space, inodes or quota is left"""

    def test_no_space_left(self):
        # 60 overlays need more space than the tmpfs has.
        done = self.run_mounted("size=100k", "", "--format", "overlay")
        self.check_stopped(done, str(self.output), "No space left on device", "bytes", "free", "run the same command again")
        self.check_resumes("--format", "overlay")

    def test_no_inodes_left(self):
        done = self.run_mounted("nr_inodes=40", "", "--format", "overlay")
        self.check_stopped(done, "No space left on device", " 0 files are free")
        self.check_resumes("--format", "overlay")

    def test_no_space_from_the_start(self):
        self.check_stopped(self.run_mounted("nr_inodes=3"), "No space left on device")

    def test_no_space_for_any_file(self):
        for name in ("lock.json", "plan/.tmp-plan.json", "plan/.tmp-000000.jsonl", "plan/.tmp-end.json", "segments/000000.part",
                     "segments/.tmp-000000.jsonl", "segments/.tmp-000000.manifest.json"):
            with self.subTest(name):
                shutil.rmtree(self.output, ignore_errors=True)
                done = self.run_injected("write,pwrite64:error=ENOSPC", path=self.output / name)
                self.check_stopped(done, name, "No space left on device", "free")
                self.check_resumes()

    def test_no_space_for_a_trace(self):
        # Results are complete without a trace, so the run does not fail.
        file = self.folder / "trace.json"
        done = self.run_injected("write,pwrite64:error=ENOSPC", "--trace", file, path=self.folder / ".tmp-trace.json")
        self.check_stopped(done, "the trace was not written", str(self.folder / ".tmp-trace.json"), "No space left on device", code=SOME_FAILED)
        self.assertFalse(file.exists())
        self.check_resumes("--trace", file)
        self.assertTrue(file.exists())

    def test_quota(self):
        done = self.run_injected("write:error=EDQUOT:when=20", path=self.output / "segments/000000.part")
        self.check_stopped(done, "000000.part", "quota")
        self.check_resumes()

    def test_file_size_limit(self):
        done = self.run_under(["prlimit", "--fsize=4096"])
        self.check_stopped(done, "File too large", "ulimit -f")
        self.check_resumes()


class FailingDisks(StorageCase):
    """S3 to S7, S9, S15: system calls fail, or the output folder becomes read-only or vanishes"""

    def test_fsync_fails(self):
        # After any failed sync, data that did not reach the disk does not count as done.
        for n in range(1, 60, 4):
            shutil.rmtree(self.output, ignore_errors=True)
            done = self.run_injected(f"fsync,fdatasync:error=EIO:when={n}")
            if done.code == SOME_FAILED:  # the run has fewer than n syncs
                break
            with self.subTest(n):
                self.check_stopped(done, "sync", "Input/output error", "check")
                self.check_resumes()
        self.assertGreater(n, 9)

    def test_rename_fails(self):
        for fault, says in (("EXDEV", "Invalid cross-device link"), ("EIO", "Input/output error")):
            with self.subTest(fault):
                shutil.rmtree(self.output, ignore_errors=True)
                done = self.run_injected(f"rename,renameat,renameat2:error={fault}:when=3+")
                self.check_stopped(done, "rename a file", says)
                self.check_resumes()

    def test_close_fails(self):
        done = self.run_injected("close:error=EIO", path=self.output / "segments/.tmp-000000.jsonl")
        self.check_stopped(done, "close", "Input/output error")
        self.check_resumes()

    def test_interrupted_writes_continue(self):
        done = self.run_injected("write:error=EINTR:when=2+7")
        self.assertEqual(done.code, SOME_FAILED, done)
        self.check_resumes()

    def test_read_only_before(self):
        """The error comes before models are read: no message names the package, which does not exist."""
        done = self.run_mounted("size=1m", f"mount -o remount,ro '{self.output}'", "--set", "models.detector=/nowhere.pkg")
        self.check_stopped(done, str(self.output), "read-only")

    def test_read_only_during(self):
        done = self.run_injected("write:error=EROFS:when=20", path=self.output / "segments/000000.part")
        self.check_stopped(done, "000000.part", "read-only")
        self.check_resumes()

    def test_output_removed_during(self):
        """The run ends and does not make the folder again. The pipe gets more names after the folder is gone."""
        pictures = program.write_pictures(self.folder / "first", 3)
        process = subprocess.Popen([program.PROGRAM, "run", self.recipe, "--input", "-", "--output", self.output, "-q"], stdin=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            process.stdin.write("".join(f"{file}\n" for file in sorted(pictures.iterdir())))
            process.stdin.flush()
            while not (self.output / "plan/plan.json").is_file() or not (self.output / "segments").is_dir():
                self.assertIsNone(process.poll())
            while self.output.exists():
                shutil.rmtree(self.output, ignore_errors=True)
            _, err = process.communicate(timeout=100)
        finally:
            process.kill()
            process.wait()
        self.check_stopped(program.Finished(process.returncode, "", err), str(self.output))
        self.assertFalse(self.output.exists())

    def test_reading_fails(self):
        """S4: Millrace retries once, then the picture fails; its neighbours do not."""
        bad = self.input / "0003.jpg"
        for error in ("EIO", "ESTALE"):
            shutil.rmtree(self.output, ignore_errors=True)
            done = self.run_injected(f"read:error={error}", path=bad)
            self.assertEqual(done.code, SOME_FAILED, done)
            self.assertIn("millrace: 0003.jpg: io_error: reading failed twice", done.err)
            self.assertEqual([line["path"] for line in program.lines(self.output) if line["state"] == "failed"], ["0003.jpg", "0007.jpg"])
            shutil.rmtree(self.output)
            done = self.run_injected(f"read:error={error}:when=1", path=bad)
            self.check_resumes()


class ChangedInput(StorageCase):
    """S10, S11, S13: the input changes after the plan"""

    def stop_halfway(self):
        """Kills the run while it writes the 20th picture."""
        done = self.run_injected("write:signal=KILL:when=20", path=self.output / "segments/000000.part")
        self.assertIn(done.code, (-9, 137))

    def test_vanished_and_changed(self):
        self.stop_halfway()
        (self.input / "0050.jpg").unlink()
        program.write_picture(self.input / "0051.jpg", 99, 99)
        program.write_picture(self.input / "0100.jpg")  # new: not in the plan
        done = self.run_ok(*self.command()[2:], code=SOME_FAILED)
        reasons = {line["path"]: line["reason"] for line in program.lines(self.output) if line["state"] == "failed"}
        self.assertEqual(reasons, {"0007.jpg": "not_an_image", "0050.jpg": "vanished", "0051.jpg": "changed_since_plan"})
        self.assertEqual(len(program.lines(self.output)), COUNT)
        for name in ("0050.jpg: vanished", "0051.jpg: changed_since_plan"):
            self.assertIn(f"millrace: {name}: ", done.err)

    def test_cut_and_damaged_journals(self):
        journal = self.output / "segments/000000.part"
        for damage in (lambda b: b[:-3], lambda b: b + os.urandom(500), lambda b: b[:100] + b"\0" * 50 + b[150:], lambda b: b""):
            shutil.rmtree(self.output, ignore_errors=True)
            self.stop_halfway()
            journal.write_bytes(damage(journal.read_bytes()))
            self.check_resumes()

    def test_a_damaged_plan_is_refused(self):
        self.stop_halfway()
        plan = self.output / "plan/000000.jsonl"
        plan.write_bytes(plan.read_bytes().replace(b"0020.jpg", b"0021.jpg"))
        done = self.run_under([])
        self.check_stopped(done, "plan", code=MISMATCH)


class Limits(StorageCase):
    """P5, P7 to P9: limits on files, memory and threads, and consoles that do not take output"""

    def test_open_files(self):
        done = self.run_under(["prlimit", "--nofile=10:10"])
        self.check_stopped(done, "open files", "10", "ulimit -n", code=ENVIRONMENT)
        self.assertFalse(self.output.exists())
        # Millrace raises a low soft limit. 64 open files are enough.
        self.assertEqual(self.run_under(["prlimit", "--nofile=10:4096"]).code, SOME_FAILED)
        self.assertEqual(self.run_under(["prlimit", "--nofile=64:64"], "--format", "overlay,png,coco", output=self.folder / "second").code, SOME_FAILED)

    @unittest.skipIf(program.SANITIZED, "sanitizers reserve more than any limit")
    def test_address_space(self):
        done = self.run_under(["prlimit", "--as=1500000000"])
        self.check_stopped(done, "gate.memory", "1.1 GB", "ulimit -v", code=ENVIRONMENT)
        self.assertEqual(self.run_under(["prlimit", "--as=1500000000"], "--set", "gate.memory=128M").code, SOME_FAILED)

    @unittest.skipIf(os.geteuid() != 0, "needs root to become a user of its own")
    def test_threads(self):
        # Root has no such limit, so this runs as the user nobody.
        # That user keeps the rights to read the program and to write the output.
        rights = "+dac_read_search,+dac_override"
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"--inh-caps={rights}", f"--ambient-caps={rights}"]
        done = self.run_under([*nobody, "prlimit", "--nproc=6"])
        if "setpriv" in done.err:
            self.skipTest("this machine does not allow ambient rights")
        self.check_stopped(done, "threads", "ulimit -u", code=ENVIRONMENT)
        self.assertEqual(self.run_under([*nobody, "prlimit", "--nproc=512"]).code, SOME_FAILED)

    def test_nobody_reads_the_console_output(self):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(self.command()[:-1], stdout=writer, stderr=writer, check=False)
        os.close(writer)
        self.assertEqual(done.returncode, SOME_FAILED)
        self.check_resumes()

    def test_a_full_device_as_console(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(self.command(), stdout=full, stderr=full, check=False)
        self.assertEqual(done.returncode, SOME_FAILED)
        self.check_resumes()

    def test_the_terminal_is_gone(self):
        done = self.run_injected("write:signal=HUP:when=20", path=self.output / "segments/000000.part")
        self.assertEqual(done.code, SOME_FAILED, done)
        self.check_resumes()


if __name__ == "__main__":
    program.main()
