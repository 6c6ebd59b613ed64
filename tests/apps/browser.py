"""Chromium for tests of pages, and what such tests import: the browser set of tools/setup.sh.

    with browser.chromium() as chromium:
        page = chromium.new_page()

A test skips if the set is missing.
"""

import contextlib
import functools
import http.server
import sys
import threading
import unittest
from pathlib import Path

WHEELS = Path(sys.prefix).parent / "browser"
CHROMIUM = Path("/usr/bin/chromium")


def require():
    """Makes the wheels of the set importable; skips the test if the set is missing."""
    if not (WHEELS / ".complete").is_file() or not CHROMIUM.is_file():
        raise unittest.SkipTest(f"{CHROMIUM} or {WHEELS} is missing; tools/setup.sh browser installs them")
    if str(WHEELS) not in sys.path:
        sys.path.append(str(WHEELS))  # at the end: numpy and others are those of the Python set


@contextlib.contextmanager
def chromium():
    """A headless Chromium that is driven by Playwright. It reaches no other machine."""
    require()
    from playwright.sync_api import sync_playwright

    # Chromium's sandbox does not run as root, nor in many containers. The pages of tests are our own.
    # Names of other machines do not resolve.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=str(CHROMIUM), args=arguments)
        try:
            yield opened
        finally:
            opened.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(folder):
    """Serves a folder on this machine alone; yields its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
