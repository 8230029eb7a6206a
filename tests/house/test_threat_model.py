"""Every test that THREAT_MODEL.md and SECURITY.md name exists."""

import re

from tests.house.tree import ROOT, files

PAGES = ("THREAT_MODEL.md", "SECURITY.md")
NAMED = re.compile(r"`(?:[\w/.]+::)?(test_\w+)`")


def defined() -> set[str]:
    sources = [path.read_text(encoding="utf-8") for path in files() if path.match("tests/**/test_*.py")]
    return {name for source in sources for name in re.findall(r"^(?:async )?def (test_\w+)", source, re.MULTILINE)}


def test_every_named_test_exists() -> None:
    named = {name for page in PAGES for name in NAMED.findall((ROOT / page).read_text(encoding="utf-8"))}
    assert len(named) > 30
    assert sorted(named - defined()) == []


def test_every_attack_names_its_test() -> None:
    text = (ROOT / "THREAT_MODEL.md").read_text(encoding="utf-8")
    attacks = [line for part in re.split(r"^## ", text, flags=re.MULTILINE)[2:] for line in part.splitlines()]
    rows = [line for line in attacks if line.startswith("| ") and "shown by" not in line and "and the test" not in line]
    assert len(rows) > 20
    assert [row for row in rows if not NAMED.search(row) and "`benchmarks/" not in row] == []
