"""What a page is like for its readers: barriers, width, moving parts, time."""

from typing import Any, Final

from playwright.async_api import Page

RULES: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
RUN: Final = "tags => axe.run({runOnly: tags, resultTypes: ['violations']})"
SHIFTS: Final = """
() => new Promise(resolve => {
    const seen = [];
    const note = list => seen.push(...list.getEntries().map(one =>
        `${one.value} of ${one.sources.map(source => source.node && source.node.nodeName).join(', ')}`));
    new PerformanceObserver(note).observe({type: 'layout-shift', buffered: true});
    const after = frames => frames ? requestAnimationFrame(() => after(frames - 1)) : setTimeout(() => resolve(seen));
    after(10);
})
"""
LOADED: Final = "() => performance.getEntriesByType('navigation')[0].loadEventEnd"
WIDER: Final = """
() => {
    const wide = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= wide) return [];
    const beyond = [...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect().right > wide + 1);
    return [`the page is ${document.documentElement.scrollWidth} wide, the screen ${wide}`, ...beyond.slice(0, 9).map(
        one => `${one.tagName} ${one.id} ${one.className}: ${(one.textContent || '').trim().slice(0, 60)}`)];
}
"""


async def barriers(page: Page, axe: str) -> list[str]:
    """What keeps people from using the page, a line each. `axe`: its script, which needs a page that runs scripts."""
    await page.evaluate(axe)
    found: dict[str, Any] = await page.evaluate(RUN, list(RULES))
    return [
        f"{rule['id']} ({rule['impact']}): {rule['help']}: {node['target']}: {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


async def beyond_the_screen(page: Page) -> list[str]:
    """What makes the document wider than the screen; empty: nothing does."""
    found: list[str] = await page.evaluate(WIDER)
    return found


async def shifts(page: Page) -> list[str]:
    """The parts of the page that moved while it was loaded. The page runs scripts."""
    found: list[str] = await page.evaluate(SHIFTS)
    return found


async def load_milliseconds(page: Page) -> float:
    """From the beginning of the request until the page was complete. The page is loaded."""
    taken: float = await page.evaluate(LOADED)
    assert taken > 0
    return taken
