"""Alerts, runbooks and the board fit each other, and name only metrics, labels and values that the code has."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from dispatcher.extender.configuration import FAULTS
from dispatcher.jobs.refusals import CreateOutcome
from dispatcher.kube.reservations import RESERVATIONS
from dispatcher.model.errors import SettingsError
from dispatcher.model.verdicts import HoldReason, NotReady
from dispatcher.runtime import metrics
from dispatcher.settings.loading import load
from docs.make_board import BOARD
from tests.house.tree import ROOT
from tests.rig.pages import OPERATOR, RUNBOOKS, read_page

RULES = ROOT / "deploy" / "chart" / "files" / "rules.yaml"
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
QUERIES = [rule["expr"] for rule in ALERTS] + [
    target["expr"] for panel in json.loads(BOARD.read_text(encoding="utf-8"))["panels"] for target in panel["targets"]
]
SECTIONS = ["Meaning", "Look", "Mend", "When to wake whom"]
MOST_LINES = 60
OF_THE_SCRAPE = {"namespace", "installation", "instance"}
SELECTED = re.compile(r"(dispatcher_\w+)(?:{([^}]*)})?")
CONDITION = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
KNOWN: Mapping[tuple[str, str], set[str]] = {
    ("dispatcher_waiting_tasks", "reason"): set(HoldReason),
    ("dispatcher_job_creates_total", "outcome"): set(CreateOutcome),
    ("dispatcher_last_round_timestamp_seconds", "component"): {"dispatch", "janitor", "cache-keeper"},
    ("dispatcher_sweep_deletes_total", "outcome"): {"failed", "forbidden", "unknown"},
    ("dispatcher_launches_total", "launch"): {"first", "again"},
    ("dispatcher_credential_end_timestamp_seconds", "credential"): {"token"},
    ("dispatcher_extender_request_seconds_count", "outcome"): {"ok"},
    ("dispatcher_store_age_seconds", "resource"): {RESERVATIONS.name},
}
"""Values that conditions may name, by metric and label."""


def labels_of(scraped: str) -> set[str] | None:
    """Labels of a metric by its name in a scrape; None: there is no such metric."""
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.describe()
            suffixes = {"counter": ("_total",), "histogram": ("_count", "_sum", "_bucket")}.get(family.type, ("",))
            if scraped in {family.name + suffix for suffix in suffixes}:
                return {*metric._labelnames, *(["le"] if scraped.endswith("_bucket") else [])}
    return None


@pytest.mark.parametrize("query", dict.fromkeys(QUERIES))
def test_query_names_only_what_the_code_exports(query: str) -> None:
    found = SELECTED.findall(query)
    assert found
    for metric, conditions in found:
        labels = labels_of(metric)
        assert labels is not None, f"no metric {metric}"
        for label, operator, value in CONDITION.findall(conditions):
            assert label in labels | OF_THE_SCRAPE, f"{metric} has no label {label}"
            if label not in OF_THE_SCRAPE and (metric, label) in KNOWN:
                named = set(value.split("|")) if "~" in operator else {value}
                assert named <= KNOWN[metric, label]


def test_quantile_of_an_alert_has_a_bucket_that_ends_at_its_limit() -> None:
    """Between two bounds Prometheus guesses: answers that stopped after 0.2 s counted as slower than half a second."""
    limits = [
        found for rule in ALERTS for found in re.findall(r"(\w+)_bucket.*?\) > ([\d.]+)", rule["expr"], re.DOTALL)
    ]
    assert limits
    for name, limit in limits:
        (metric,) = [one for one in vars(metrics).values() if isinstance(one, Histogram) and one._name == name]
        assert float(limit) in metric._upper_bounds


def test_unknown_metric_would_be_found() -> None:
    assert labels_of("dispatcher_waiting_rows") is None
    assert labels_of("dispatcher_launches") is None
    assert labels_of("dispatcher_launches_total") == {"launch"}
    assert labels_of("dispatcher_cycle_seconds_bucket") == {"le"}
    assert b"dispatcher_launches_total" in generate_latest(REGISTRY)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: f"{one['alert']} {one['labels']['severity']}")
def test_alert_has_a_severity_and_says_where_it_is_and_what_to_do(alert: Mapping[str, Any]) -> None:
    said = alert["annotations"]
    assert alert["labels"]["severity"] in {"page", "ticket"}
    assert set(said) == {"summary", "description", "runbook_url"}
    assert said["summary"].startswith("{{ $labels.namespace }}/{{ $labels.installation }}")
    assert "namespace, installation" in alert["expr"]
    assert said["runbook_url"] == f"docs/runbooks/{alert['alert']}.md"


def test_each_alert_has_its_runbook_and_each_runbook_its_alert() -> None:
    assert sorted(RUNBOOKS) == sorted({rule["annotations"]["runbook_url"] for rule in ALERTS})


@pytest.mark.parametrize("page", RUNBOOKS)
def test_runbook_is_short_and_has_the_four_sections(page: str) -> None:
    text = read_page(page)
    assert len(text.splitlines()) <= MOST_LINES
    assert re.findall(r"^# (.*)$", text, re.MULTILINE)[0] == page.removesuffix(".md").rpartition("/")[2]
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert "```sh\n# needs a cluster\n" in text.partition("## Mend")[0], "Look has commands"


def test_idle_dispatcher_ends_its_cycles_in_time_for_the_alert() -> None:
    """Without a row and without news of the cluster, the next cycle comes after POLL_SECONDS."""
    (limit,) = {found for query in QUERIES for found in re.findall(r'component="dispatch"} > (\d+)', query)}
    with pytest.raises(SettingsError):
        load({"DISPATCHER_POLL_SECONDS": limit}, str)


def test_operators_page_links_every_runbook() -> None:
    linked = set(re.findall(r"\]\((runbooks/\w+\.md)\)", read_page(OPERATOR)))
    assert {f"docs/{one}" for one in linked} == set(RUNBOOKS)


def test_runbook_explains_why_the_dispatcher_is_not_ready() -> None:
    """Without a leader no row is counted, and DispatcherNoLeader calls."""
    text = read_page("docs/runbooks/DispatcherNothingLaunched.md")
    assert [why for why in NotReady if f"`{why}`" not in text] == [NotReady.NO_LEADER]


def test_runbook_explains_every_fault_of_the_configuration() -> None:
    text = read_page("docs/runbooks/DispatcherExtenderMisconfigured.md")
    assert [fault for fault in FAULTS if f"| `{fault}` |" not in text] == []
