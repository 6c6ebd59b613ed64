"""`millrace run --serve`: /status.json, /metrics, and requests that a hostile client sends."""

import http.client
import json
import os
import re
import signal
import socket
import unittest

import browser
import program
from live_run import LiveRun


class Serve(program.Case):
    def setUp(self):
        super().setUp()
        self.pictures = program.write_pictures(self.folder / "in", 6)
        self.picture = self.pictures / "0000.jpg"

    def test_the_status_is_the_report_up_to_now(self):
        run = LiveRun(self)
        first = run.until(lambda it: it["report"])
        self.assertEqual((first["state"], first["errors"]), ("running", []))
        self.assertIsNone(first["report"]["run_window"])  # no picture has come
        run.add(*[self.pictures / f"000{i}.jpg" for i in range(5)], self.pictures / "none\u202e.jpg")
        state = run.until_done(6)
        self.assertEqual(state["report"]["items"]["failed"], {"vanished": 1})
        self.assertEqual([error["reason"] for error in state["errors"]], ["vanished"])
        self.assertEqual(state["attempt"], str(next((run.output / "runs").iterdir()).resolve()))
        self.assertIn("pictures_per_s", [column["name"] for column in state["series"]["columns"]])
        progress = state["progress"]
        self.assertEqual((progress["done"], progress["failed"], progress["planned"], progress["plan_complete"], progress["left_s"]), (6, 1, 6, False, None))
        window = state["report"]["run_window"]
        self.assertEqual((window["admitted"], window["committed"]), (6, 6))
        self.assertEqual([row["name"] for row in window["resources"]], ["read", "workers", "commit"])
        self.assertIsNone(state["report"]["gpus"])  # only the end of the run shows them
        # The last state comes to those who follow, before the program ends.
        follow = run.follow()
        out, err = run.finish(program.SOME_FAILED)
        last = follow()
        self.assertEqual(last["state"], "finished", err)
        self.assertIsNone(last["progress"])
        report = program.report(run.output)
        self.assertEqual(last["report"], report)
        self.assertEqual(set(state["report"]), set(report))
        self.assertEqual(set(state["report"]["run_window"]), set(report["run_window"]))
        self.assertEqual(set(state["report"]["verdict"]), set(report["verdict"]))
        self.assertIn("page  ", out)

    def test_prometheus_reads_the_metrics(self):
        browser.require()
        from prometheus_client.parser import text_string_to_metric_families

        run = LiveRun(self)
        run.add(self.picture, self.pictures / "0001.jpg", self.pictures / "none.jpg")
        run.until_done(3)
        status, headers, text = run.get("metrics")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
        families = {family.name: family for family in text_string_to_metric_families(text)}
        state = run.status()
        for family in families.values():
            self.assertRegex(family.name, "^millrace_[a-z_]+$")
            self.assertNotEqual(family.documentation, "", family.name)
            self.assertIn(family.type, ("counter", "gauge"), family.name)
            for sample in family.samples:
                self.assertEqual(sample.name.endswith("_total"), family.type == "counter", sample.name)

        def value(name, **labels):
            found = [sample.value for sample in families[name].samples if sample.labels == labels]
            self.assertEqual(len(found), 1, (name, labels))
            return found[0]

        self.assertEqual(value("millrace_pictures", outcome="ok"), 2)
        self.assertEqual(value("millrace_failed_pictures", reason="vanished"), 1)
        self.assertEqual(value("millrace_state", state="running"), 1)
        self.assertEqual(value("millrace_plan_complete"), 0)
        self.assertEqual(value("millrace_stage_items", stage="decode", resource="workers"), 2)
        self.assertEqual(value("millrace_stage_items", stage="read", resource="read"), 3)
        self.assertEqual(value("millrace_info", version=state["run"]["tool"].split()[1], run=state["report"]["run"]), 1)
        self.assertGreater(value("millrace_cpu_seconds"), 0)
        self.assertLess(value("millrace_run_seconds"), 120)
        self.assertGreater(value("millrace_resident_memory_bytes"), 1e6)
        # They are those of the report.
        rows = {row["name"]: row for row in state["report"]["run_window"]["resources"]}
        self.assertEqual(value("millrace_resource_busy_seconds", resource="read"), rows["read"]["busy_s"])
        self.assertEqual(value("millrace_calls", counter="decode_warnings"), state["report"]["calls"]["decode_warnings"])
        run.finish(program.SOME_FAILED)

    def test_without_measuring_unknown_figures_are_left_out(self):
        run = LiveRun(self, "--set", "measure.enabled=no")
        run.add(self.picture)
        state = run.until(lambda it: it["progress"] and it["progress"]["done"] == 1 and it["report"]["run_window"])
        self.assertIsNone(state["series"])
        self.assertIn("switches measuring off", state["report"]["verdict"]["sentence"])
        metrics = run.get("metrics")[2]
        self.assertIn("millrace_pictures_total{outcome=\"ok\"} 1\n", metrics)
        self.assertNotIn("resource_busy", metrics)
        run.finish()

    def test_places_that_it_refuses_before_the_run_starts(self):
        recipe = self.write("decode.yaml", program.DECODE_ONLY)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            for place, env, message in [
                (f"127.0.0.1:{port}", {}, "another program uses this port; choose another port, or 0 for any free one"),
                ("192.0.2.1:0", {}, "name an address of this machine"),
                ("example.org:80", {}, "it must be a port such as 8080"),
                ("65536", {}, "it must be a port such as 8080"),
                ("0.0.0.0:0", {"MILLRACE_SERVE_TOKEN": "short"}, "MILLRACE_SERVE_TOKEN must have 16 to 256"),
                ("0.0.0.0:0", {"MILLRACE_SERVE_TOKEN": ""}, "MILLRACE_SERVE_TOKEN must have 16 to 256"),
            ]:
                with self.subTest(place, env=env):
                    done = program.millrace("run", recipe, "--input", self.pictures, "--output", self.folder / "out", "--serve", place, env=env)
                    self.assertEqual(done.code, program.USAGE, done)
                    self.assertIn(message, done.err)
                    self.assertEqual(len(done.err.splitlines()), 1, done)
                    self.assertFalse((self.folder / "out").exists())
        for command in ("tune", "profile"):
            done = program.millrace(command, "--input", self.pictures, "--serve", "0")
            self.assertIn("--serve has no effect here", done.err)

    def test_other_machines_need_a_token(self):
        run = LiveRun(self, serve="0.0.0.0:0")
        token = re.search(r"\?token=([0-9a-f]{32})\n", run.said)[1]
        self.assertIn(f"http://{socket.gethostname()}:{run.port}/?token=", run.said)
        for wrong in ("", "?token=", "?token=" + token[:-1], "?token=" + token + "0", "?token=" + "0" * 32, "?nekot=" + token, "?token=" + token + "&token=x"):
            for place in ("", "status.json", "metrics", "none"):
                status, headers, text = run.get(place + wrong)
                self.assertEqual((status, headers["WWW-Authenticate"]), (401, 'Bearer realm="millrace"'), place + wrong)
                self.assertNotIn(token, text)
        self.assertEqual(run.get("status.json", Authorization=f"Basic {token}")[0], 401)
        self.assertEqual(run.get("metrics?token=" + token)[0], 200)
        self.assertEqual(run.get("status.json?after=0&token=" + token)[0], 200)
        self.assertEqual(run.get("status.json", Authorization=f"Bearer {token}", Host="any.example")[0], 200)
        run.finish(program.USAGE)  # no picture came

    def test_the_token_of_the_user_is_not_printed(self):
        token = "a-token.of_the~user"
        run = LiveRun(self, env={**os.environ, "MILLRACE_SERVE_TOKEN": token})
        self.assertEqual(run.get("")[0], 401)  # on loopback, too
        self.assertEqual(run.get("?token=" + token)[0], 200)
        run.add(self.picture)
        out, err = run.finish()
        self.assertNotIn(token, run.said + out + err)
        self.assertIn("MILLRACE_SERVE_TOKEN", run.said)
        for file in run.output.rglob("*"):
            self.assertNotIn(token.encode(), file.read_bytes() if file.is_file() else b"", file)

    def test_on_loopback_only_names_of_this_machine(self):
        run = LiveRun(self)
        for host, status in [("localhost", 200), (f"127.0.0.1:{run.port}", 200), ("LocalHost:9000", 200), ("[::1]:1", 200), ("127.1.2.3", 200),
                             ("evil.example", 403), (f"evil.example:{run.port}", 403), ("localhost.evil.example", 403), ("127.0.0.1.evil.example", 403),
                             ("", 403), ("[::1", 403), ("10.0.0.1", 403), ("[fe80::1]", 403)]:
            self.assertEqual(run.get("status.json", Host=host)[0], status, host)
        run.finish(program.USAGE)

    def raw(self, run, sent):
        """All bytes of the answer to the bytes `sent`."""
        with socket.create_connection(("127.0.0.1", run.port), timeout=120) as connection:
            connection.sendall(sent)
            received = b""
            try:
                while part := connection.recv(65536):
                    received += part
            except ConnectionResetError:
                pass  # the server closed before it read everything
            return received

    def test_requests_that_are_wrong(self):
        run = LiveRun(self)
        head = b"Host: localhost\r\nConnection: close\r\n"
        for sent, status in [
            (b"POST / HTTP/1.1\r\n" + head + b"\r\n", 405),
            (b"POST / HTTP/1.1\r\n" + head + b"Content-Length: 5\r\n\r\nhello", 405),
            (b"DELETE /status.json HTTP/1.1\r\n" + head + b"\r\n", 405),
            (b"OPTIONS * HTTP/1.1\r\n" + head + b"\r\n", 405),
            (b"BREW / HTTP/1.1\r\n" + head + b"\r\n", 405),
            (b"GET /../../etc/passwd HTTP/1.1\r\n" + head + b"\r\n", 404),
            (b"GET /%2e%2e/report.json HTTP/1.1\r\n" + head + b"\r\n", 404),
            (b"GET /status.json%00 HTTP/1.1\r\n" + head + b"\r\n", 404),
            (b"GET //status.json HTTP/1.1\r\n" + head + b"\r\n", 404),
            (b"GET http://localhost/metrics HTTP/1.1\r\n" + head + b"\r\n", 404),
            (b"GET /runs HTTP/1.1\r\n" + head + b"\r\n", 404),
            (b"GET /?\x00 HTTP/1.1\r\n" + head + b"\r\n", 400),
            (b"GET / HTTP/1.1\r\n" + head + b"Content-Length: 5\r\n\r\nhello", 413),
            (b"GET / HTTP/1.1\r\n" + head + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 413),
            (b"GET / HTTP/1.1\r\n" + head + b"X: " + b"x" * 10_000 + b"\r\n\r\n", 431),
            (b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\n" + head + b"\r\n", 431),
            (b"GET / HTTP/9.9\r\n" + head + b"\r\n", 505),
            (b"hello\r\n\r\n", 400),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # a client that speaks TLS
            (b"GET /status.json?after&=&&x=%zz&after=0 HTTP/1.1\r\n" + head + b"\r\n", 200),
        ]:
            with self.subTest(sent[:60]):
                answer = self.raw(run, sent)
                self.assertRegex(answer, rb"^HTTP/1\.1 %d " % status)
                self.assertIn(b"Content-Security-Policy: default-src 'none'", answer)
        answer = self.raw(run, b"HEAD /status.json HTTP/1.1\r\n" + head + b"\r\n")
        self.assertRegex(answer, rb"^HTTP/1\.1 200 ")
        self.assertTrue(answer.endswith(b"\r\n\r\n"), answer)
        self.assertGreater(int(re.search(rb"Content-Length: (\d+)", answer)[1]), 100)
        # Two requests at once get two answers.
        answer = self.raw(run, b"GET /none HTTP/1.1\r\nHost: localhost\r\n\r\nGET /metrics HTTP/1.1\r\n" + head + b"\r\n")
        self.assertEqual(re.findall(rb"HTTP/1\.1 (\d+)", answer), [b"404", b"200"])
        self.assertEqual(run.get("metrics")[0], 200)
        run.finish(program.USAGE)

    def test_half_requests_do_not_disturb_the_run(self):
        run = LiveRun(self)
        half = []
        for _ in range(100):  # more than the server takes at a time
            connection = socket.create_connection(("127.0.0.1", run.port), timeout=120)
            self.addCleanup(connection.close)
            connection.sendall(b"GET /status.json HT")
            half.append(connection)
        run.add(self.picture)
        run.finish()
        self.assertEqual(program.report(run.output)["items"]["ok"], 1)

    def test_it_answers_again_when_others_have_left(self):
        run = LiveRun(self)
        half = [socket.create_connection(("127.0.0.1", run.port), timeout=120) for _ in range(100)]
        for connection in half:
            connection.close()
        self.assertEqual(run.get("metrics")[0], 200)
        run.finish(program.USAGE)

    def test_the_open_files_of_the_program_stay_bounded(self):
        run = LiveRun(self)
        open_files = lambda: len(os.listdir(f"/proc/{run.program.pid}/fd"))  # noqa: E731
        run.add(self.picture)
        run.until_done(1)
        before = open_files()
        half = [socket.create_connection(("127.0.0.1", run.port), timeout=120) for _ in range(100)]
        self.assertLessEqual(open_files(), before + 32 + 2)  # the run itself may open a file or two
        for connection in half:
            connection.close()
        run.finish()

    @unittest.skipIf(program.SANITIZED, "AddressSanitizer keeps freed memory")
    def test_ten_thousand_requests_do_not_grow_memory(self):
        run = LiveRun(self)
        run.add(self.picture)
        run.until_done(1)
        connection = http.client.HTTPConnection("127.0.0.1", run.port, timeout=120)

        def ask(count):
            for i in range(count):
                connection.request("GET", "/" if i % 50 == 0 else "/metrics" if i % 2 else "/status.json")
                answer = connection.getresponse()
                self.assertEqual(answer.status, 200)
                answer.read()

        def resident():
            with open(f"/proc/{run.program.pid}/status") as file:
                return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) << 10

        ask(1000)
        before = resident()
        ask(10_000)
        self.assertLess(resident() - before, 4 << 20)
        connection.close()
        run.finish()

    def test_ctrl_c_stops_the_run_and_the_last_state_says_so(self):
        run = LiveRun(self)
        run.add(self.picture)
        run.until_done(1)
        follow = run.follow()
        run.program.send_signal(signal.SIGINT)
        run.finish(program.INTERRUPTED)
        last = follow()
        self.assertEqual((last["state"], last["report"]["state"]), ("stopped", "stopped"))

    def test_a_run_that_fails_says_why(self):
        run = LiveRun(self)
        follow = run.follow()
        _, err = run.finish(program.USAGE)  # without a picture
        last = follow()
        self.assertEqual(last["state"], "failed")
        self.assertIn(last["error"], err)

    def test_ipv6(self):
        if not os.path.exists("/proc/net/if_inet6"):
            self.skipTest("this machine has no IPv6")
        run = LiveRun(self, serve="[::1]:0")
        self.assertIn(f"http://[::1]:{run.port}/", run.said)
        connection = http.client.HTTPConnection("::1", run.port, timeout=120)
        connection.request("GET", "/status.json")
        self.assertIn(json.loads(connection.getresponse().read())["state"], ("starting", "running"))
        connection.close()
        run.finish(program.USAGE)


if __name__ == "__main__":
    program.main()
