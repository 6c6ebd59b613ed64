"""`millrace model` from outside: how it starts the exporters, an export from an installed tree alone, and `make model`."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path

import program
from program import Case, millrace

sys.path[:0] = [str(program.ROOT / "models/export")]
PROGRAM = Path(program.PROGRAM).resolve()
BUILD = PROGRAM.parents[1]
NAMES = ["with blank.pt", "it's \"quoted\".pt", "new\nline.pt", "-dash.pt", "$HOME;`id`*.pt", "ü.pt"]
# A program that writes its words and its environment to files and ends like a script of the test wants.
RECORDER = """#!/bin/sh
printf '%s\\0' "$@" > "$RECORD.words"
env -0 > "$RECORD.environment"
"""


class Recorded(Case):
    def setUp(self):
        super().setUp()
        self.record = self.folder / "record"

    def recorder(self, name="recorder", end="exit 0"):
        file = self.write(name, RECORDER + end + "\n")
        file.chmod(0o755)
        return str(file)

    def parts(self, kind):
        return Path(f"{self.record}.{kind}").read_bytes().split(b"\0")[:-1]

    def words(self):
        return [os.fsdecode(word) for word in self.parts("words")]

    def model(self, *words, **env):
        return millrace("model", *words, cwd=self.folder, env={"RECORD": str(self.record), **env})


class Start(Recorded):
    def test_the_interpreter_gets_the_arguments_unchanged(self):
        words = [*NAMES, "--imgsz", "384", "640", "--out", "a b", "", b"\xff.pt"]
        done = self.model("--", *words, MILLRACE_PYTHON=self.recorder())
        self.assertEqual((done.code, done.out, done.err), (program.OK, "", ""))
        *flags, script, own, recipes, dashes = self.words()[: -len(words)]
        self.assertEqual((flags, script, own, dashes), (["-s", "-B"], str(program.ROOT / "models/export/model.py"), str(PROGRAM), "--"))
        self.assertTrue((Path(recipes) / "detect.yaml").is_file())
        self.assertEqual(self.words()[-len(words) :], [os.fsdecode(word) for word in words])

    def test_the_environment_of_the_interpreter(self):
        self.model("a.pt", MILLRACE_PYTHON=self.recorder(), OMP_WAIT_POLICY="active", LD_PRELOAD="", OWN="kept", PYTHONPATH="/x", PYTHONHASHSEED="7")
        environment = dict(part.decode().split("=", 1) for part in self.parts("environment"))
        self.assertEqual((environment["OMP_WAIT_POLICY"], environment["OWN"]), ("passive", "kept"))
        # Exports of the same file have the same bytes only with the same seed.
        self.assertEqual({name: value for name, value in environment.items() if name.startswith("PYTHON")}, {"PYTHONHASHSEED": "0"})
        allocator = re.search(r"^allocator +(/\S*libtcmalloc\S*)", millrace("doctor").out, re.MULTILINE)
        self.assertEqual(environment["LD_PRELOAD"], allocator[1] if allocator else "")
        # A library of the caller's stays.
        (own,) = Path("/usr/lib/x86_64-linux-gnu").glob("libm.so.6")
        self.model("a.pt", MILLRACE_PYTHON=self.recorder(), LD_PRELOAD=str(own))
        environment = dict(part.decode().split("=", 1) for part in self.parts("environment"))
        self.assertEqual(environment["LD_PRELOAD"], f"{allocator[1]}:{own}" if allocator else str(own))

    def test_settings_of_the_callers_python_have_no_effect(self):
        hostile = self.write("site/argparse.py", "raise SystemExit(99)\n").parent
        done = self.model("a.pt", "--wrong", MILLRACE_PYTHON=sys.executable, PYTHONPATH=str(hostile), PYTHONHOME="/nowhere")
        said = "export: unrecognized arguments: --wrong; `millrace model --help` describes the command\n"
        self.assertEqual((done.code, done.out, done.err), (program.USAGE, "", said))

    def test_exit_code_and_signal_are_those_of_the_exporter(self):
        for end, code in (("exit 42", 42), ("kill -TERM $$", -signal.SIGTERM), ("kill -INT $$", -signal.SIGINT)):
            with self.subTest(end):
                self.assertEqual(self.model("a.pt", MILLRACE_PYTHON=self.recorder(end=end)).code, code)

    def test_an_interpreter_that_cannot_be_started(self):
        for python in (self.folder / "none", self.folder, self.write("no program", "")):
            done = self.model("a.pt", MILLRACE_PYTHON=str(python))
            self.assertEqual((done.code, done.out), (program.ENVIRONMENT, ""), done)
            self.assertRegex(done.err, re.escape(f"'{python}' cannot be started (") + r"[^)]*\); MILLRACE_PYTHON names it")

    def test_a_bare_name_is_searched_in_path(self):
        self.recorder("bin/own-python")
        self.assertEqual(self.model("a.pt", MILLRACE_PYTHON="own-python", PATH=f"{self.folder}/bin:{os.environ['PATH']}").code, program.OK)
        self.assertEqual(self.words()[-1], "a.pt")

    def test_a_python_set_that_is_missing(self):
        """The printed command works from any folder, and installs the set where the program then finds it."""
        deps = self.folder / "it's empty"
        for given in (str(deps), "it's empty"):  # absolute, and from the current folder
            done = self.model("a.pt", MILLRACE_DEPS=given, MILLRACE_PYTHON="")
            self.assertEqual((done.code, done.out), (program.ENVIRONMENT, ""), done)
            self.assertRegex(done.err, r"the exporters need the Python set, which is not in '.*/python'; install it \(5\.7 GB\)")
        command = done.err.splitlines()[-1].strip()
        self.assertTrue(command.endswith(" python"))
        where = command.removesuffix("python") + "where"
        folder = subprocess.run(["bash", "-c", where], cwd="/", env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True).stdout.strip()
        self.assertEqual(Path(folder).parent, deps)
        self.assertIn(f"'{folder}/python'", done.err)

        self.recorder(f"it's empty/{Path(folder).name}/python/bin/python")
        self.assertEqual(self.model("a.pt", MILLRACE_DEPS=str(deps), MILLRACE_PYTHON="").code, program.ENVIRONMENT)  # an unfinished installation
        Path(folder, "python/.complete").touch()
        self.assertEqual(self.model("a.pt", MILLRACE_DEPS=str(deps), MILLRACE_PYTHON="").code, program.OK)
        self.assertEqual(self.words()[-1], "a.pt")

    def test_without_arguments(self):
        done = self.model(MILLRACE_PYTHON=self.recorder())
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("`millrace model yolov8n.pt [mobile_sam.pt]`", done.err)
        self.assertFalse(Path(f"{self.record}.words").exists())

    def test_the_help_lists_the_options_of_the_exporters(self):
        import model

        done = self.model("--help", MILLRACE_DEPS="/nowhere", MILLRACE_PYTHON="/nowhere")
        self.assertEqual((done.code, done.err), (program.OK, ""))
        taken = {option for action in model.make_parser()._actions for option in action.option_strings}
        self.assertEqual(set(re.findall(r"^  (--[\w-]+)", done.out, re.MULTILINE)), taken | {"--help"})
        self.assertIn("  model ", millrace("--help").out)


class Stop(Case):
    def test_a_stopped_export_leaves_nothing(self):
        sys.path.append(str(program.ROOT / "tests/models"))
        import export_case

        export_case.save_ultralytics(self.folder / "nano.pt", export_case.plain_yolo("yolov8n"))
        for number, code in ((signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, program.TERMINATED)):
            environment = {**os.environ, "MILLRACE_PYTHON": sys.executable}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            with self.subTest(number.name), subprocess.Popen([PROGRAM, "model", "nano.pt"], cwd=self.folder, env=environment, **pipes) as running:
                self.assertIn("comparing on a picture", running.stdout.readline())  # the work has begun
                running.send_signal(number)
                out, err = running.communicate(timeout=120)
                self.assertEqual((running.returncode, err), (code, "export: stopped\n"), out)
                self.assertEqual([file.name for file in self.folder.iterdir()], ["nano.pt"])


class Refusals(Case):
    """Wrong use of the command with the real exporters: one line, the right exit code, no package."""

    def check(self, code, says, *words):
        done = millrace("model", *words, cwd=self.folder, env={"MILLRACE_PYTHON": sys.executable})
        self.assertEqual((done.code, done.out), (code, ""), done)
        self.assertIn(says, done.err)
        self.assertEqual(len(done.err.splitlines()), 1, done)
        self.assertEqual([path for path in self.folder.rglob("*") if path.suffix in (".pkg", ".part")], [])

    def test_refusals(self):
        for name in ("a.pt", "b/a.pt", "c.pt", "file"):
            self.write(name, "no weights")
        self.check(program.ENVIRONMENT, "export: no where.pt: no such file; name the file with the weights", "no where.pt")
        self.check(program.ENVIRONMENT, "a.pt: is of an unknown kind", "a.pt")
        self.check(program.ENVIRONMENT, "-dash.pt: no such file", "--", "-dash.pt")
        self.check(program.USAGE, "are required: WEIGHTS", "--trust")
        self.check(program.USAGE, "3 files are named", "a.pt", "b/a.pt", "c.pt")
        self.check(program.USAGE, "unrecognized arguments: --tru", "a.pt", "--tru")
        self.check(program.USAGE, "invalid int value: 'big'", "a.pt", "--imgsz", "big")
        self.check(program.USAGE, f"b/a.pt: its package would overwrite {self.folder}/out/a.pkg, that of a.pt", "a.pt", "b/a.pt", "--out", "out")
        self.check(program.USAGE, "is not UTF-8", b"\xff.pt")
        self.check(program.STORAGE, f"{self.folder}/file: you cannot create a folder there", "a.pt", "--out", "file/out")
        if os.geteuid() != 0:  # root may write everywhere
            (self.folder / "b").chmod(0o500)
            self.check(program.STORAGE, f"{self.folder}/b: you cannot create a folder there", "b/a.pt")


class Installed(Case):
    """`make install` without the sources: an export from another folder reads installed files alone."""

    def setUp(self):
        super().setUp()
        self.prefix = self.folder / "a prefix"
        subprocess.run(["cmake", "--install", BUILD, "--prefix", self.prefix], stdout=subprocess.DEVNULL, check=True)
        self.share = self.prefix / "share/millrace"

    def test_an_export_and_its_run(self):
        if shutil.which("strace") is None:
            self.skipTest("strace is not installed; tools/setup.sh check installs it")
        sys.path.append(str(program.ROOT / "tests/models"))
        import export_case

        export_case.save_ultralytics(self.folder / "my nano.pt", export_case.plain_yolo("yolov8n"))
        log = self.folder / "files"
        tracer = ["strace", "-f", "--seccomp-bpf", "-s", "4096", "-o", str(log), "-e", "trace=file"]
        environment = {**os.environ, "MILLRACE_PYTHON": sys.executable}
        done = subprocess.run([*tracer, self.prefix / "bin/millrace", "model", "my nano.pt", "--imgsz", "64", "--out", "packages"], cwd=self.folder,
                              env=environment, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        opened = log.read_text(errors="replace")
        self.assertIn(f'"{self.share}/export/ultralytics_yolo.py"', opened)  # the log has what Python opened
        self.assertEqual([line for line in opened.splitlines() if f'"{program.ROOT}/' in line], [])
        self.assertFalse(list(self.share.rglob("__pycache__")))

        words = shlex.split(done.stdout.splitlines()[-1])
        self.assertEqual(words[:3], [str(self.prefix / "bin/millrace"), "run", str(self.share / "configs/detect.yaml")])
        self.assertEqual(words[words.index("--detector") + 1], str(self.folder / "packages/my nano.pkg"))
        program.write_pictures(self.folder / "in", 2)
        words = [{"PICTURES": "in", "RESULTS": "out"}.get(word, word) for word in words]
        subprocess.run([*words, "--quiet"], cwd=self.folder, check=True, capture_output=True)
        self.assertEqual([line["state"] for line in program.lines(self.folder / "out")], ["ok", "ok"])

    def test_every_installed_module_finds_those_that_it_imports(self):
        names = sorted(file.stem for file in (self.share / "export").glob("*.py"))
        self.assertIn("sam_checkpoint", names)
        command = [sys.executable, "-B", "-c", f"import {', '.join(names)}"]
        done = subprocess.run(command, cwd=self.share / "export", capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_installed_set_up_script(self):
        def where(script):
            environment = {**os.environ, "MILLRACE_DEPS": "/deps"}
            return subprocess.run([script, "where"], cwd="/", env=environment, capture_output=True, text=True, check=True).stdout

        self.assertEqual(where(self.share / "tools/setup.sh"), where(program.ROOT / "tools/setup.sh"))
        command = [self.prefix / "bin/millrace", "model", "a.pt"]
        done = subprocess.run(command, cwd="/", env={"MILLRACE_DEPS": str(self.folder)}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, program.ENVIRONMENT, done)
        self.assertEqual(shlex.split(done.stderr.splitlines()[-1]), [f"MILLRACE_DEPS={self.folder}", str(self.share / "tools/setup.sh"), "python"])


class Make(Recorded):
    """`make model` in a folder whose build and set-up do nothing, and whose program writes down its words."""

    def setUp(self):
        super().setUp()
        shutil.copy(program.ROOT / "Makefile", self.folder)
        for script in ("tools/setup.sh", "tools/build.sh"):
            self.write(script, '#!/bin/sh\necho "$0 $*" >> calls\n').chmod(0o755)
        self.recorder("build/release/apps/millrace")

    def make(self, *variables):
        own = ("WEIGHTS", "SEGMENTER", "OUT", "PHOTOGRAPH", "IMGSZ", "NAMES", "PRESET", "TRUST", "MAKEFLAGS", "MAKELEVEL")
        environment = {**{key: value for key, value in os.environ.items() if key not in own}, "RECORD": str(self.record)}
        return subprocess.run(["make", "model", *variables], cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def test_variables_become_options(self):
        for name in ("-it's my nano.pt", "sam.pt"):
            self.write(name, "")
        done = self.make("WEIGHTS=-it's my nano.pt", "SEGMENTER=sam.pt", "OUT=a  b", "PHOTOGRAPH=-p.jpg", "IMGSZ=384 640", 'NAMES="n"', "PRESET=V2", "TRUST=1")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        self.assertEqual(self.words(), ["model", "--out=a  b", "--photograph=-p.jpg", "--imgsz", "384", "640", '--names="n"', "--preset=V2", "--trust",
                                        "--", "-it's my nano.pt", "sam.pt"])
        self.assertEqual((self.folder / "calls").read_text().splitlines()[-1], "tools/setup.sh python")
        self.assertEqual(self.make("SEGMENTER=sam.pt").returncode, 0)
        self.assertEqual(self.words(), ["model", "--", "sam.pt"])

    def test_nothing_is_installed_or_built_without_weights(self):
        for variables, says in (
            ((), "no weights named; make model WEIGHTS=yolov8n.pt"),
            (("WEIGHTS=no where.pt",), "no where.pt: no such file; fetch the weights first"),
            (("SEGMENTER=none.pt",), "none.pt: no such file; fetch the weights first"),
        ):
            done = self.make(*variables)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done)
            self.assertIn(says, done.stderr)
            self.assertFalse((self.folder / "calls").exists())

    def test_a_refusal_fails_the_command(self):
        self.write("a.pt", "")
        self.recorder("build/release/apps/millrace", end="exit 5")
        self.assertEqual(self.make("WEIGHTS=a.pt").returncode, 2)


if __name__ == "__main__":
    program.main()
