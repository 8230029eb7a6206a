"""The amounts on the page of installation are those that were measured last."""

import json

import pytest

from tests.house.tree import ROOT
from tests.rig.pages import INSTALL, read_page

RECORDS = ROOT / "benchmarks" / "records.jsonl"
FIGURES = {
    ("idle_cycle", "peak memory, MiB"): "{} MiB with a million waiting rows",
    ("idle_cycle", "cycle, 10^6 waiting, 10^6 finished, ms"): "{} ms with a million waiting rows and nothing to do",
    ("watched_cluster", "peak memory, MiB"): "{} MiB with 5,000 nodes and 50,000 Pods",
    ("watched_cluster", "cycle at 10^6 rows, ms"): "{} ms if they all wait for room",
    ("extender_answers", "memory at its peak (MiB)"): "{} MiB with 5,000 nodes and 50,000 Pods",
    ("extender_holds", "memory at its peak (MiB)"): "{} MiB with 10,000 reservations",
}
"""Words of the page, by benchmark and figure."""


def measured(benchmark: str, name: str) -> float:
    """The newest value of a figure, or of what was measured beside the figures."""
    found: float | None = None
    for line in RECORDS.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["benchmark"] == benchmark:
            figures = {one["name"]: one["value"] for one in record["figures"]} | record["beside"]
            found = figures.get(name, found)
    assert found is not None, f"{benchmark} has no figure {name}"
    return found


@pytest.mark.parametrize(("figure", "words"), FIGURES.items(), ids=str)
def test_amount_on_the_page_of_installation_is_the_measured_one(figure: tuple[str, str], words: str) -> None:
    assert words.format(round(measured(*figure))) in read_page(INSTALL)
