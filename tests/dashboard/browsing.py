"""A real browser on a built site: what a page said, asked for and looks like."""

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGES = (
    "index", "latency", "speedup", "ablation", "schedule", "mla", "roofline", "composition",
    "model", "history", "point",
)  # fmt: skip
LAPTOP, PHONE = 1280, 390


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served(root: Path) -> Iterator[str]:
    """``root`` on a local port; gives the address."""
    handler = functools.partial(_Quiet, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@dataclass
class Visit:
    """One open page and everything that went wrong on it."""

    page: Any
    base: str
    messages: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, context: Any, base: str) -> "Visit":
        """A page that keeps every console message, page error, and request to elsewhere."""
        visit = cls(context.new_page(), base)
        visit.page.on("console", lambda message: visit.messages.append(message.text))
        visit.page.on("pageerror", lambda error: visit.messages.append(str(error)))
        visit.page.on("dialog", lambda dialog: visit.messages.append(f"dialog {dialog.message}"))
        visit.page.on("request", visit._asked)
        visit.page.on("requestfailed", visit._failed)
        visit.page.on("response", visit._answered)
        return visit

    def _asked(self, request: Any) -> None:
        local = (self.base, "data:", "blob:")
        if not request.url.startswith(local):
            self.foreign.append(request.url)

    def _failed(self, request: Any) -> None:
        # The browser drops what is still on its way, such as an icon, when a page is left.
        if request.failure != "net::ERR_ABORTED":
            self.messages.append(f"{request.failure} {request.url}")

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.messages.append(f"{response.status} {response.url}")

    def open(self, name: str, **state: Any) -> "Visit":
        """Loads a page anew and waits until it is drawn."""
        fragment = "&".join(f"{key}={value}" for key, value in state.items())
        self.page.goto("about:blank")
        self.page.goto(f"{self.base}/{name}.html" + (f"#{fragment}" if fragment else ""))
        return self.drawn()

    def drawn(self) -> "Visit":
        """Waits until the page says that it is drawn, and its charts are."""
        self.page.wait_for_selector("html[data-drawn]", timeout=20_000)
        for box in self.page.query_selector_all("figure .chart"):
            box.wait_for_selector(".main-svg", state="attached", timeout=20_000)
        return self

    def choose(self, name: str, value: str) -> "Visit":
        """Sets one of the page's controls."""
        self.page.select_option(f"#choose-{name}", value)
        return self.drawn()

    def options(self, name: str) -> list[str]:
        """The values of a control; empty where the page has none of that name."""
        found = self.page.query_selector_all(f"#choose-{name} option")
        return [option.get_attribute("value") for option in found]

    def saved(self, figure: str, button: str) -> str:
        """Content of the file that a figure's button gives."""
        with self.page.expect_download() as download:
            self.page.click(f"#{figure} button:text-is('{button}')")
        assert download.value.suggested_filename == f"{figure}.{button.lower()}"
        return Path(download.value.path()).read_text(encoding="utf-8")

    def must_be_clean(self) -> None:
        """Nothing on the console, nothing asked elsewhere, nothing from outside run or made."""
        assert self.messages == []
        assert self.foreign == []
        assert self.page.evaluate("() => window.hacked") is None
        # Nothing but what the pages are made of: no element came in with a name.
        made = self.page.evaluate(
            "() => [...document.querySelectorAll('img, iframe, object, embed, body script, body b,"
            " svg a[*|href]')].map((element) => element.outerHTML)"
        )
        assert made == []

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(self.page.evaluate("() => document.documentElement.scrollWidth - innerWidth"))
