"""A headless Chromium: looks (light, dark, phone), what is wrong on a page, pictures of it."""

from __future__ import annotations

from importlib import resources
from typing import Any

from django.conf import settings
from django.test import Client
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from tests.kit.ground import ROOT

PICTURES = ROOT / ".cache" / "screenshots"
LOOKS = {"light": (1280, 900), "dark": (1280, 900), "phone": (390, 844)}
AXE = resources.files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")


class Window:
    """The browser's only window."""

    def __init__(self, chromium: str, driver: str) -> None:
        options = Options()
        options.binary_location = chromium
        # The sandbox can't be had in most containers, nor by root; the pages are our own.
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(driver))

    def close(self) -> None:
        """End the browser."""
        self.driver.quit()

    def log_in(self, address: str, client: Client) -> None:
        """Be whom ``client`` is."""
        self.driver.get(f"{address}/guard/metrics")
        self.driver.delete_all_cookies()
        name = settings.SESSION_COOKIE_NAME
        self.driver.add_cookie({"name": name, "value": client.cookies[name].value, "path": "/"})

    def open(self, url: str, look: str) -> None:
        """Show ``url`` in one of :data:`LOOKS`."""
        wide, high = LOOKS[look]
        scheme = "dark" if look == "dark" else "light"
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self._tell("Emulation.setEmulatedMedia", features=media)
        size = {"width": wide, "height": high, "deviceScaleFactor": 1, "mobile": look == "phone"}
        self._tell("Emulation.setDeviceMetricsOverride", **size)
        self.driver.get_log("browser")
        self.driver.get(url)

    def complaints(self) -> list[str]:
        """What the browser itself complained of since the page was opened: scripts, policy, files."""
        said = [str(entry["message"]) for entry in self.driver.get_log("browser")]
        # The browser asks for it by itself where a site's plain text page names none.
        return [message for message in said if "/favicon.ico" not in message]

    def barriers(self, within: str) -> list[str]:
        """What axe finds wrong within a selector, by rule and place."""
        # Past the policy of the page, which would forbid it as a script of the page.
        self._tell("Runtime.evaluate", expression=AXE)
        found = self._tell(
            "Runtime.evaluate",
            expression=f"axe.run({within!r}).then(found => found.violations.flatMap("
            "rule => rule.nodes.map(node => `${rule.id}: ${node.target} ${node.failureSummary}`)))",
            awaitPromise=True,
            returnByValue=True,
        )
        barriers: list[str] = found["result"]["value"]
        return barriers

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.driver.execute_script(wider))

    def background(self) -> str:
        """The colour behind the text."""
        colour = "return getComputedStyle(document.body).backgroundColor"
        return str(self.driver.execute_script(colour))

    def picture(self, name: str) -> None:
        """Keep a picture of the whole page, to be looked at by a person."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        high = self.driver.execute_script("return document.documentElement.scrollHeight")
        wide = self.driver.execute_script("return innerWidth")
        size = {"width": wide, "height": max(high, 1), "deviceScaleFactor": 1, "mobile": False}
        self._tell("Emulation.setDeviceMetricsOverride", **size)
        self.driver.save_screenshot(str(PICTURES / f"{name}.png"))

    def _tell(self, command: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, parameters)
