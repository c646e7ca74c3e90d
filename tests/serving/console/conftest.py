"""A headless Chromium, and pages in it that must make no error, break no policy and talk to nobody but their server."""

import contextlib
import re
import shutil
from urllib.parse import urlsplit

import psutil
import pytest
from playwright.sync_api import sync_playwright

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))), None
)
VIOLATIONS = """
  window.violations = [];
  document.addEventListener("securitypolicyviolation", (event) => {
    violations.push(`${event.violatedDirective} ${event.blockedURI}`);
  });
"""


def _browsers() -> set[psutil.Process]:
    """The processes of browsers and of their driver, below this one."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # ended meanwhile
            if re.search("chrom|node|playwright", child.name()):
                found.add(child)
    return found


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("the console is tested in Chromium, which is not installed here: apt install chromium, or put it on PATH")
    before = _browsers()
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--disable-gpu", "--disable-dev-shm-usage"])
        started = _browsers() - before
        assert started
        yield opened
        started |= _browsers() - before
        opened.close()
    assert psutil.wait_procs(started, timeout=30)[1] == []


class Watched:
    """A page of the console. `page.allowed` are patterns of messages in the browser's log that a test expects."""

    def __init__(self, browser, url: str, **context):
        self.url = url
        self.errors: list[str] = []
        self.requests: list[str] = []
        # A test that starts a server of its own ends it before its page.
        self.allowed = [r"net::ERR_(CONNECTION|EMPTY|INCOMPLETE)"]
        self.context = browser.new_context(reduced_motion="reduce", **context)
        self.context.set_default_timeout(30_000)
        self.context.add_init_script(VIOLATIONS)
        self.page = self.context.new_page()
        self.page.on(
            "console", lambda message: self.errors.append(message.text) if message.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)

    def close(self) -> None:
        try:
            self.page.wait_for_timeout(50)
            assert self.page.evaluate("violations") == []
            own = urlsplit(self.url).netloc
            elsewhere = [url for url in self.requests if not url.startswith("blob:") and urlsplit(url).netloc != own]
            assert elsewhere == []
            assert not [error for error in self.errors if not any(re.search(allowed, error) for allowed in self.allowed)]
        finally:
            self.context.close()


@pytest.fixture
def visit(browser):
    """visit(server, ...) opens the console; what it did is looked at when the test ends."""
    opened: list[Watched] = []

    def begin(server, **context) -> Watched:
        watched = Watched(browser, f"{server.url}/", **context)
        opened.append(watched)
        return watched

    yield begin
    for watched in opened:
        watched.close()
