"""`promtool test rules`: the shipped alerts on samples of any length of time, in seconds.

A case changes series of a healthy installation. The same Prometheus has two more installations, which are healthy: one
in the same namespace, and one of the same name elsewhere. So each case also shows that installations do not hide each
other.
"""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.house.tree import ROOT

RULES: Final = ROOT / "deploy" / "chart" / "files" / "rules.yaml"
FIRING: Final = 'count by (alertname, namespace, installation, severity) (ALERTS{alertstate="firing"})'
NOW: Final = "0+{seconds}x{samples}"
"""A Unix time that is always now: promtool counts from 0."""
Series = Mapping[str, str]
"""Values by series, in promtool's notation. `{samples}` is the length of the case, `{seconds}` the time between two."""

HEALTHY: Final[Series] = {
    'dispatcher_leader{instance="a"}': "1x{samples}",
    'dispatcher_leader{instance="b"}': "0x{samples}",
    'dispatcher_database_up{instance="a"}': "1x{samples}",
    'dispatcher_database_up{instance="b"}': "1x{samples}",
    'dispatcher_database_up{instance="j"}': "1x{samples}",
    'dispatcher_last_round_timestamp_seconds{instance="a",component="dispatch"}': NOW,
    'dispatcher_last_round_timestamp_seconds{instance="b",component="dispatch"}': NOW,
    'dispatcher_last_round_timestamp_seconds{instance="j",component="janitor"}': NOW,
    'dispatcher_waiting_tasks{instance="a",queue="default",reason="InLine"}': "5x{samples}",
    'dispatcher_waiting_tasks{instance="a",queue="default",reason="Launched"}': "2x{samples}",
    'dispatcher_oldest_wait_seconds{instance="a",queue="default"}': "40x{samples}",
    'dispatcher_launches_total{instance="a",launch="first"}': "0+30x{samples}",
    'dispatcher_launches_total{instance="a",launch="again"}': "0x{samples}",
    'dispatcher_tasks_ended_total{instance="a",queue="default",status="succeeded"}': "0+10x{samples}",
    'dispatcher_tasks_ended_total{instance="a",queue="default",status="failed"}': "0x{samples}",
    'dispatcher_job_creates_total{instance="a",outcome="created"}': "0+30x{samples}",
    'dispatcher_job_creates_total{instance="a",outcome="forbidden"}': "0x{samples}",
    'dispatcher_job_creates_total{instance="a",outcome="quota"}': "0+20x{samples}",
    'dispatcher_store_age_seconds{instance="a",resource="jobs"}': "20x{samples}",
    'dispatcher_store_age_seconds{instance="a",resource="nodereservations"}': "20x{samples}",
    'dispatcher_store_age_seconds{instance="e",resource="nodes"}': "20x{samples}",
    'dispatcher_reservations{instance="e",phase="Active"}': "0x{samples}",
    'dispatcher_extender_request_seconds_count{instance="e",verb="filter",outcome="ok"}': "0+600x{samples}",
    'dispatcher_extender_request_seconds_count{instance="e",verb="filter",outcome="late"}': "0+2x{samples}",
    'dispatcher_extender_request_seconds_bucket{instance="e",le="0.2"}': "0+590x{samples}",
    'dispatcher_extender_request_seconds_bucket{instance="e",le="0.5"}': "0+602x{samples}",
    'dispatcher_extender_request_seconds_bucket{instance="e",le="1"}': "0+602x{samples}",
    'dispatcher_extender_request_seconds_bucket{instance="e",le="+Inf"}': "0+602x{samples}",
    'dispatcher_extender_config_faults{instance="e",fault="uncached"}': "0x{samples}",
    'dispatcher_cache_disk_used_ratio{instance="k"}': "0.7x{samples}",
    'dispatcher_cache_disk_high_ratio{instance="k"}': "0.8x{samples}",
    'dispatcher_last_round_timestamp_seconds{instance="k",component="cache-keeper"}': NOW,
    'dispatcher_credential_end_timestamp_seconds{instance="e",credential="server-certificate"}': "2592000x{samples}",
    'dispatcher_credential_end_timestamp_seconds{instance="a",credential="token"}': "1000+{seconds}x{samples}",
}


class Firing(NamedTuple):
    alert: str
    severity: str


class Case(NamedTuple):
    """Samples of one installation, and what fires.

    name: what the samples are like.
    changed: series that differ from a healthy installation. An empty text removes a series.
    fires: the alerts that fire at a minute; none: silence.
    minutes: length of the samples.
    step: minutes between two samples. Only long cases have longer steps.
    """

    name: str
    changed: Series
    fires: Mapping[int, Sequence[Firing]]
    minutes: int = 90
    step: int = 1


class Place(NamedTuple):
    namespace: str
    installation: str


BROKEN, BESIDE, ELSEWHERE = Place("team", "one"), Place("team", "two"), Place("other", "one")


def series_of(case: Case, changed: Series, place: Place | None) -> Iterator[dict[str, str]]:
    """The series of an installation. `place` None: as a scrape without the labels of the PodMonitor has them."""
    length = {"{samples}": str(case.minutes // case.step), "{seconds}": str(60 * case.step)}
    labels = f'namespace="{place.namespace}",installation="{place.installation}",' if place else ""
    for name, values in {**HEALTHY, **changed}.items():
        if values:
            sized = reduce(lambda text, pair: text.replace(*pair), length.items(), values)
            yield {"series": name.replace("{", "{" + labels, 1), "values": sized}


def written(case: Case, *, labelled: bool) -> dict[str, Any]:
    """One test of promtool's."""
    found = list(series_of(case, case.changed, BROKEN if labelled else None))
    for place in (BESIDE, ELSEWHERE) if labelled else ():
        found += series_of(case, {}, place)
    return {
        "name": f"{case.name}{'' if labelled else ', without labels'}",
        "interval": f"{case.step}m",
        "input_series": found,
        "promql_expr_test": [
            {"expr": FIRING, "eval_time": f"{at}m", "exp_samples": [expected(one, labelled) for one in firing]}
            for at, firing in case.fires.items()
        ],
    }


def expected(firing: Firing, labelled: bool) -> dict[str, Any]:
    where = f'namespace="{BROKEN.namespace}",installation="{BROKEN.installation}",' if labelled else ""
    return {"labels": f'{{{where}alertname="{firing.alert}",severity="{firing.severity}"}}', "value": 1}


def said_of(promtool: Path, cases: Sequence[Case], folder: Path, rules: Path = RULES) -> tuple[bool, str]:
    """Whether promtool passes the cases, and what it says. The first of each alert is tried without labels, too."""
    tests = {step: [written(case, labelled=True) for case in cases if case.step == step] for step in (1, 5)}
    first = {one.alert: case for case in reversed(cases) for found in case.fires.values() for one in found}
    for case in dict.fromkeys(case.name for case in first.values()):
        (named,) = [one for one in cases if one.name == case]
        tests[named.step].append(written(named, labelled=False))
    for step, found in tests.items():
        content = {"rule_files": [str(rules)], "evaluation_interval": f"{step}m", "tests": found}
        (folder / f"tests-{step}.yaml").write_text(yaml.safe_dump(content))
    files = [folder / f"tests-{step}.yaml" for step in tests]
    done = subprocess.run([promtool, "test", "rules", *files], capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr
