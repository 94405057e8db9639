"""A page as Chromium shows it, without a network: what is seen, and what is wrong with it."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

EXECUTABLES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first has no windows, and opens a page in a third of the time."""

MISSING = "Chromium is not installed: apt-get install chromium"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
expect.set_options(timeout=120_000)  # it ends a hang; nothing is said about speed
READABLE = 4.5
"""The least contrast of text that WCAG 2.2 accepts at level AA."""

# Texts are paired with the nearest ancestor that has a background; transparency is not mixed.
FACTS = """() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => {
    const [r, g, b] = numbers(colour).map(c => c / 255)
      .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const backdrop = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (numbers(colour)[3] !== 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const contrast = element => {
    const pair = [light(getComputedStyle(element).color), light(backdrop(element))];
    return (Math.max(...pair) + .05) / (Math.min(...pair) + .05);
  };
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (words.nextNode()) {
    const element = words.currentNode.parentElement;
    if (words.currentNode.data.trim() && element.checkVisibility()) texts.push(element);
  }
  const box = image => image.getBoundingClientRect();
  return {
    scroll_width: document.documentElement.scrollWidth,
    inner_width: innerWidth,
    contrast: Math.min(...texts.map(contrast)),
    text: document.body.innerText,
    headings: [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map(h => +h.tagName[1]),
    images: [...document.images].map(image => ({
      alt: image.alt,
      natural_width: image.naturalWidth,
      visible: image.checkVisibility({opacityProperty: true, visibilityProperty: true}),
      left: box(image).left, right: box(image).right, height: box(image).height,
    })),
  };
}"""


@dataclass(frozen=True)
class Image:
    """An image as it lies on the page, in CSS pixels."""

    alt: str
    natural_width: int
    visible: bool
    left: float
    right: float
    height: float

    def is_seen(self, width: int) -> bool:
        shown = self.visible and self.natural_width > 0 and self.height > 0
        return shown and 0 <= self.left < self.right <= width


@dataclass(frozen=True)
class RenderedPage:
    """What a window of this width shows when everything that folds is unfolded."""

    width: int
    scroll_width: int
    inner_width: int
    images: tuple[Image, ...]
    headings: tuple[int, ...]
    contrast: float
    text: str
    requests: tuple[str, ...]
    complaints: tuple[str, ...]

    @property
    def faults(self) -> list[str]:
        """All that is wrong, in words."""
        faults = [f"asks for {url}" for url in self.requests]
        faults += [f"the browser complains: {text}" for text in self.complaints]
        if max(self.scroll_width, self.inner_width) > self.width:
            faults.append(f"{self.scroll_width} pixels wide in a window of {self.width}")
        unseen = [image for image in self.images if not image.is_seen(self.width)]
        faults += [f"not seen: {image}" for image in unseen]
        silent = [image for image in self.images if not image.alt]
        faults += [f"an image without alternative text: {image}" for image in silent]
        if self.headings[:1] != (1,) or self.headings.count(1) != 1:
            faults.append(f"not one title on top: headings {self.headings}")
        if any(lower > upper + 1 for upper, lower in pairwise(self.headings)):
            faults.append(f"a level is skipped: headings {self.headings}")
        if self.contrast < READABLE:
            faults.append(f"text of contrast {self.contrast:.2f}")
        return faults


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The Chromium of this machine; tests that need it are skipped where there is none."""
    installed = [path for name in EXECUTABLES if (path := shutil.which(name))]
    if not installed:
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=installed[0], args=ARGUMENTS)
        yield browser
        browser.close()


def look(browser: Browser, path: Path, width: int, *, dark: bool = False) -> RenderedPage:
    """Open a file offline in a window of this width and say what is seen."""
    requests: list[str] = []
    complaints: list[str] = []

    def only_itself(route: Route) -> None:
        if route.request.url == path.resolve().as_uri():
            route.continue_()
        else:
            route.abort()

    with browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme="dark" if dark else "light"
    ) as context:
        context.set_offline(True)
        context.route("**/*", only_itself)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda said: complaints.append(said.text) if said.type == "error" else None,
        )
        _open(page, path)
        facts: dict[str, Any] = page.evaluate(FACTS)
    images = tuple(Image(**image) for image in facts.pop("images"))
    own = (path.resolve().as_uri(), "data:")
    return RenderedPage(
        width=width,
        images=images,
        headings=tuple(facts.pop("headings")),
        requests=tuple(url for url in requests if not url.startswith(own)),
        complaints=tuple(complaints),
        **facts,
    )


def print_pages(browser: Browser, path: Path) -> int:
    """Print a file and count the sheets."""
    with browser.new_context(offline=True) as context:
        page = context.new_page()
        page.goto(path.resolve().as_uri())
        return len(re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True)))


def _open(page: Page, path: Path) -> None:
    page.goto(path.resolve().as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
