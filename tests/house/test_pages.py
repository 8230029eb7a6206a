"""The reference pages are made from the code and up to date."""

import re
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from dispatcher.settings.loading import known_names
from docs import make_faults, make_metrics, make_settings


@pytest.mark.parametrize(
    ("page", "made"),
    [
        (make_settings.PAGE, make_settings.settings_page()),
        (make_metrics.PAGE, make_metrics.metrics_page()),
        (make_faults.PAGE, make_faults.faults_page()),
    ],
    ids=lambda one: one.name if isinstance(one, Path) else "",
)
def test_reference_page_is_up_to_date(page: Path, made: str) -> None:
    assert page.read_text(encoding="utf-8") == made, "run `make docs`"


def test_every_setting_is_on_its_page() -> None:
    assert set(re.findall(r"`(DISPATCHER_\w+[A-Z])`", make_settings.settings_page())) == known_names()


def test_metrics_page_has_every_metric_by_its_scraped_name() -> None:
    scraped = set(re.findall(r"^# TYPE (dispatcher_\w+) ", generate_latest().decode(), re.MULTILINE))
    shown = set(re.findall(r"^\| `(\w+)`", make_metrics.metrics_page(), re.MULTILINE))
    assert shown == {name for name in scraped if not name.endswith("_created")}
