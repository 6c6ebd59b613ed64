"""A run of the program with --serve that waits for pictures, for tests."""

import http.client
import json
import re
import subprocess
import threading
import urllib.error
import urllib.request

import program


class LiveRun:
    """A run that reads the names of its pictures from stdin. It ends with finish().

    Requests that follow the run wait for its next state, so no test waits for a time.
    """

    def __init__(self, case, *options, serve="0", recipe=program.DECODE_ONLY, env=None):
        self.output = case.folder / "out"
        self.program = subprocess.Popen(
            [program.PROGRAM, "run", str(case.write("live.yaml", recipe)), "--input", "-", "--output", str(self.output), "--serve", serve, *map(str, options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        case.addCleanup(self.kill)
        self.said = ""
        while "watch this run at" not in self.said:  # notes may come first
            self.said = self.program.stderr.readline().decode()
            case.assertNotEqual(self.said, "", "the program ended without a URL")
        self.url = re.search(r"http://\S+/", self.said)[0]
        self.port = int(re.search(r":(\d+)/", self.url)[1])

    def kill(self):
        self.program.kill()
        self.program.wait()
        for stream in self.program.stdin, self.program.stdout, self.program.stderr:
            stream.close()

    def add(self, *pictures):
        self.program.stdin.write("".join(f"{picture}\n" for picture in pictures).encode())
        self.program.stdin.flush()

    def get(self, place="status.json", method="GET", **headers):
        """The answer: status, headers and text."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{place}", method=method, headers={name.replace("_", "-"): value for name, value in headers.items()})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read().decode()

    def status(self, after=None):
        return json.loads(self.get("status.json" if after is None else f"status.json?after={after['version']}")[2])

    def until(self, holds):
        """The first state for which `holds` is true."""
        state = self.status()
        while not holds(state):
            state = self.status(after=state)
        return state

    def until_done(self, count):
        """The state in which `count` pictures are finished and resources.csv has rows for charts."""
        return self.until(lambda state: state["progress"] and state["progress"]["done"] >= count and state["report"]["run_window"]
                          and state["series"] and any(column["name"] == "pictures_per_s" for column in state["series"]["columns"]))

    def follow(self):
        """Follows the run as its page does. Call the result for the last state, after the end of the run."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        state = {"version": 0}

        def step():
            connection.request("GET", f"/status.json?after={state['version']}")
            state.update(json.loads(connection.getresponse().read()))

        for _ in range(3):  # from the second one on, the answer had to wait, so the server knows that this client follows
            step()

        def to_end():
            while state["state"] in ("starting", "running"):
                step()
            connection.close()

        thread = threading.Thread(target=to_end)
        thread.start()

        def last():
            thread.join()
            return state

        return last

    def finish(self, code=program.OK):
        """Ends the input, and waits for the end of the run. Returns what it printed."""
        self.program.stdin.close()
        out, err = self.program.stdout.read().decode(), self.program.stderr.read().decode()
        assert self.program.wait(120) == code, (self.program.returncode, out, err)
        return out, err
