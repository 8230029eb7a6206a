"""Makes the pictures of the dashboard in `docs/pictures`, of a real `dispatcher demo` in a real browser.

Run as `python -m docs.make_page_pictures [FOLDER]`. It needs Chromium: `make browser` says how it comes.
"""

import asyncio
import re
import socket
import sys
from pathlib import Path
from typing import Any, Final

import aiohttp
from playwright.async_api import Browser

from tests.browser.looks import Look
from tests.browser.showing import shown, started
from tests.controlplane.waiting import moment, wait_for
from tests.rig.demoing import Demo, demo

FOLDER: Final = Path(__file__).with_name("pictures")
TASKS: Final = 60
ASK_SECONDS: Final = 0.5
WIDTH, HEIGHT = 1200, 720
LOOK: Final = Look("picture", {"viewport": {"width": WIDTH, "height": HEIGHT}, "color_scheme": "light"})
PAGE: Final = re.compile(r"http://127\.0\.0\.1:\d+")
RENAME: Final = """
([name, other]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(name, other)
}
"""


async def ask(url: str, path: str) -> Any:
    """The answer. It is empty until the dispatcher answers, which may be later than the demo tells its address."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/{path}") as answer:
            return await answer.json() if answer.status == 200 else {}
    except aiohttp.ClientConnectionError:
        return {}


async def is_lively(url: str) -> bool:
    """Whether there is something to see: rows that run, rows that wait for several reasons, a row that failed.

    It is asked seldom: the dispatcher gives all questions together a tenth of its time, and the browser comes next.
    """
    await moment(ASK_SECONDS)
    status, failures = await ask(url, "status"), await ask(url, "failures")
    reasons = {reason for queue in status.get("queues", ()) for reason in queue["reasons"]}
    return len(reasons) > 2 and bool(failures.get("groups"))


async def row_to_show(url: str) -> int:
    """A row that was tried again, else any row that has ended."""
    rows = (await ask(url, "tasks?limit=100"))["tasks"]
    return int(max(rows, key=lambda row: (row["attempt"], row["finished_at"] is not None))["task"])


async def take(browser: Browser, address: str, file: Path) -> None:
    """Takes a picture of the upper part of a page. The name of this machine is left out."""
    async with shown(browser, address, LOOK) as (page, _):
        await page.evaluate(RENAME, [socket.gethostname(), "dispatcher-0"])
        await page.screenshot(path=file)


async def take_all(running: Demo, folder: Path) -> None:
    await running.until(lambda: PAGE.search(running.said), "the demo tells the address of its page")
    found = PAGE.search(running.said)
    assert found is not None
    url = found[0]
    await wait_for(lambda: is_lively(url), "the demo is lively", 60, check=running.check)
    async with started() as browser:
        await take(browser, f"{url}/", folder / "overview.png")
        await take(browser, f"{url}/queues/default", folder / "queue.png")
        await take(browser, f"{url}/tasks/{await row_to_show(url)}", folder / "task.png")


async def make(folder: Path) -> None:
    """Writes the pictures into the folder."""
    async with demo("--keep", "--tasks", TASKS) as running:
        await take_all(running, folder)


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
