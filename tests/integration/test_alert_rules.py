"""Each alert fires for its cause, in its time, and only for the installation that has the cause."""

import subprocess
from pathlib import Path

import pytest
import yaml

from dispatcher.kube.reflector import MOST_SHOWN
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


@pytest.mark.parametrize(
    ("age", "told"),
    [(300, "A program knows jobs as they were 5m 0s ago."), (MOST_SHOWN, "A program could not list jobs yet.")],
)
def test_alert_of_a_store_tells_one_that_was_never_listed(
    promtool: Path, age: float, told: str, tmp_path: Path
) -> None:
    """Where a right is missing from the first day on, it told of 11,574 days."""
    where = {"namespace": "team", "installation": "one", "resource": "jobs"}
    said = {
        "summary": "team/one: the API server does not tell of jobs",
        "description": f"{told} It makes no decision that needs them.",
        "runbook_url": "docs/runbooks/DispatcherStoreStale.md",
    }
    labels = ",".join(f'{name}="{value}"' for name, value in where.items())
    fires = {"exp_labels": {**where, "severity": "ticket"}, "exp_annotations": said}
    content = {
        "rule_files": [str(RULES)],
        "tests": [{
            "interval": "1m",
            "input_series": [{"series": f"dispatcher_store_age_seconds{{{labels}}}", "values": f"{age:.0f}x10"}],
            "alert_rule_test": [{"eval_time": "5m", "alertname": "DispatcherStoreStale", "exp_alerts": [fires]}],
        }],
    }  # fmt: skip
    tests = tmp_path / "tests.yaml"
    tests.write_text(yaml.safe_dump(content))
    done = subprocess.run([promtool, "test", "rules", tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("about", [about for about in CASES if about != "health"])
def test_cases_fail_without_the_rules(promtool: Path, about: str, tmp_path: Path) -> None:
    """promtool would also pass tests that ask nothing."""
    empty = tmp_path / "rules.yaml"
    empty.write_text("groups: []\n")
    passed, said = said_of(promtool, CASES[about], tmp_path, empty)
    assert not passed
    assert "FAILED" in said
