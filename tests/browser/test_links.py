"""Every link of every page leads to an answer of the same server, and to a part of it that is there."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from dispatcher.views.answers import API
from tests.browser.pages import PAGES, REFUSED
from tests.browser.world import World, asked
from tests.rig.showing import Shown

LEADING = {"a": "href", "link": "href", "script": "src", "form": "action"}


def links_of(page: Shown) -> Iterator[str]:
    for tag, attributes in page.elements:
        address = attributes.get(LEADING.get(tag, ""))
        if address:
            yield address


async def links(world: World) -> dict[str, str]:
    """Each address with the name of a page that leads to it."""
    found: dict[str, str] = {}
    for name, path in PAGES.items():
        _, _, text = await asked(world, path)
        at = urlsplit(path.format_map(world.rows)).path
        found |= {at + one if one.startswith("#") else one: name for one in links_of(Shown(text))}
    return found


async def test_every_link_leads_to_an_answer_of_ours(world: World) -> None:
    found, faults = await links(world), list[str]()
    refused = {form + PAGES[name]: status for name, status in REFUSED.items() for form in ("", API)}
    pages = {address.partition("#")[0]: Shown("") for address in found if address.startswith("/")}
    for address in pages:
        status, _, text = await asked(world, address)
        pages[address] = Shown(text)
        if status != refused.get(address, 200):
            faults.append(f"{address} of {found.get(address)} answers {status}")
    for address, name in found.items():
        page, _, part = address.partition("#")
        if page not in pages:
            faults.append(f"{address} of {name} is no path of ours")
        elif part and part not in pages[page].ids():
            faults.append(f"{address} of {name}: there is no such part")
    assert faults == []
    assert len(found) > 100


async def test_every_page_leads_to_its_json(world: World) -> None:
    for name, path in PAGES.items():
        _, _, text = await asked(world, path)
        page = urlsplit(path.format_map(world.rows)).path
        in_json = [one for one in links_of(Shown(text)) if one.startswith(API) and "openapi" not in one]
        assert urlsplit(in_json[0]).path == API + ("/status" if page == "/" else page), name
        status, headers, _ = await asked(world, in_json[0])
        assert (status, headers["content-type"].partition(";")[0]) == (REFUSED.get(name, 200), "application/json"), name
