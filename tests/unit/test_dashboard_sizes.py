"""No page reaches 100 kB with its style and its script, whatever texts people and containers have written."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from dispatcher.views.answers import ADDRESSES, LONGEST_QUERY, ApiRequest, too_long
from dispatcher.views.server import MOST_BYTES, STATIC, Pages
from dispatcher.views.status import InstallationIdentity
from tests.unit import worst_pages as worst

PLACE = InstallationIdentity("dispatcher", "1.2.3", "n" * 63, "n" * 63)
PAGES = Pages(PLACE, "/a/prefix")
ANSWERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "overview": ("overview.html", worst.overview),
    "tasks": ("tasks.html", worst.tasks),
    "failures": ("failures.html", worst.failures),
    "batches": ("batches.html", worst.batches),
    "batch": ("batches.html", lambda sign: worst.batches(sign, 1)),
    "queue": ("queue.html", worst.queue),
    "nodes": ("nodes.html", worst.nodes),
    "row": ("task.html", worst.row),
    "about": ("about.html", worst.about),
    "refused": ("refused.html", worst.refused),
}
ORDINARY: Mapping[str, Any] = {
    "task": 123_456, "queue": "default", "template": "default", "submitted_by": "team_a", "batch": "nightly",
    "priority": 100, "attempt": 1, "error": "ValueError: line 17 has 3 columns", "note": None, "progress": None,
}  # fmt: skip
SIGNS = {"escaped": "<", "quotes": "'", "emoji in addresses": "\U0001f600", "plain": "x"}


def written(name: str, sign: str) -> str:
    template, answer = ANSWERS[name]
    return PAGES.write(template, answer(sign), ApiRequest("", worst.filters(sign)), "/api/v1/something")


@pytest.mark.parametrize("sign", SIGNS.values(), ids=SIGNS)
@pytest.mark.parametrize("name", ANSWERS)
def test_largest_page_has_less_than_100_kb(name: str, sign: str) -> None:
    text = written(name, sign)
    assert len(text.encode()) + sum(len(file.body) for file in STATIC.values()) < 100_000
    assert len(text.encode()) > 10_000, "there is much to show"


def test_every_template_has_its_largest_page() -> None:
    templates = {address.template for address in ADDRESSES.values() if address.template}
    assert templates | {"refused.html"} == {template for template, _ in ANSWERS.values()}


@pytest.mark.parametrize("sign", SIGNS.values(), ids=SIGNS)
def test_rows_that_are_left_out_are_on_the_next_page(sign: str) -> None:
    text = written("tasks", sign)
    ids = [int(found) for found in re.findall(r'<th scope="row" class="n"><a href="/a/prefix/tasks/(\d+)"', text)]
    assert ids == [worst.ID - place for place in range(len(ids))]
    assert 5 < len(ids) < 100
    assert re.findall(r'rel="next" href="[^"]*after=(\d+)"', text) == [str(ids[-1])]
    assert f"A page has the first {len(ids)} of these 500 rows" in text


def test_nearly_a_hundred_ordinary_rows_are_on_one_page() -> None:
    page = worst.tasks("x", 100)
    page = replace(page, tasks=[replace(one, **ORDINARY) for one in page.tasks])
    text = Pages(PLACE, "").write("tasks.html", page, ApiRequest(), "/api/v1/tasks")
    assert len(text.encode()) < MOST_BYTES
    assert text.count('<th scope="row"') >= 90


def test_groups_that_are_left_out_are_counted() -> None:
    text = written("failures", "<")
    shown = text.count('<th scope="row"')
    assert 10 < shown < 100
    assert f"{2900 + 100 - shown:,} smaller ones are left out" in text


@pytest.mark.parametrize("sign", ["<", "\U0001f600"])
def test_filters_that_would_fill_a_page_are_refused(sign: str) -> None:
    found = too_long(ApiRequest("", {"batch": sign * LONGEST_QUERY}))
    assert found is not None
    assert (found.status, "6,000 at most" in found.error) == (400, True)
    assert too_long(ApiRequest("", worst.filters(sign))) is None
