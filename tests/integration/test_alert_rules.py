"""Each alert fires for its cause, in its time, and only for the installation that has the cause."""

from pathlib import Path

import pytest
import yaml

from tests.prometheus.alert_cases import CASES
from tests.prometheus.promtool import RULES, said_of

ALERTS = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}


@pytest.mark.slow
@pytest.mark.parametrize("about", CASES)
def test_alerts_fire_for_their_causes_alone(promtool: Path, about: str, tmp_path: Path) -> None:
    passed, said = said_of(promtool, CASES[about], tmp_path)
    assert passed, said


def test_every_alert_has_a_cause_for_which_it_fires() -> None:
    fired = {one.alert for cases in CASES.values() for case in cases for found in case.fires.values() for one in found}
    assert fired == ALERTS


@pytest.mark.parametrize("about", [about for about in CASES if about != "health"])
def test_cases_fail_without_the_rules(promtool: Path, about: str, tmp_path: Path) -> None:
    """promtool would also pass tests that ask nothing."""
    empty = tmp_path / "rules.yaml"
    empty.write_text("groups: []\n")
    passed, said = said_of(promtool, CASES[about], tmp_path, empty)
    assert not passed
    assert "FAILED" in said
