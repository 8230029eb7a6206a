"""Writes `deploy/chart/files/board.json`, the Grafana board of an installation. See `make docs`.

It has one screen for the person on call: first whether the programs work and what rows wait for, then the programs.
Gauges that every replica exports are taken by `max`, and those of the leader by `sum`.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

BOARD: Final = Path(__file__).parents[1] / "deploy" / "chart" / "files" / "board.json"
WHERE: Final = 'namespace=~"$namespace",installation=~"$installation"'
PLACE: Final = "namespace, installation"
FAILED, OF_JANITOR = 'code!~"2.."', 'component="janitor"'
RATE: Final = "[$__rate_interval]"
COLUMNS, WIDTH, HEIGHT = 4, 6, 6
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    """One panel.

    title, meaning: what people read.
    queries: legend and PromQL. A metric in them has its labels from `of`.
    unit: of Grafana.
    kind: `timeseries` or `stat`.
    stacked: whether the series add up.
    """

    title: str
    meaning: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"
    stacked: bool = False


def of(metric: str, *more: str) -> str:
    """The metric of the chosen installations. `more`: further conditions."""
    return f"{metric}{{{','.join((WHERE, *more))}}}"


def per_minute(metric: str, *more: str) -> str:
    return f"60 * rate({of(metric, *more)}{RATE})"


def quantile(share: float, histogram: str, *labels: str) -> str:
    by = ", ".join(("le", *labels))
    return f"histogram_quantile({share}, sum by ({by}) (rate({of(f'{histogram}_bucket')}{RATE})))"


PANELS: Final = (
    Panel(
        "Ready, leaders, database",
        "Ready and database are 1 if every program can do its work and read its rows. There is one leader.",
        [
            ("all ready", f"min({of('dispatcher_ready')})"),
            ("leaders", f"sum({of('dispatcher_leader')})"),
            ("database", f"min({of('dispatcher_database_up')})"),
        ],
        kind="stat",
    ),
    Panel(
        "Waiting rows by reason",
        "Every waiting row once. docs/reasons.md explains the reasons.",
        [("{{reason}}", f"sum by (reason) ({of('dispatcher_waiting_tasks')})")],
        stacked=True,
    ),
    Panel(
        "Oldest wait by queue",
        "How long the oldest due row has waited.",
        [("{{queue}}", f"max by (queue) ({of('dispatcher_oldest_wait_seconds')})")],
        "s",
    ),
    Panel(
        "Starts and ends per minute",
        "Jobs that were made, and Jobs that became complete or failed.",
        [
            ("start: {{launch}}", f"sum by (launch) ({per_minute('dispatcher_launches_total')})"),
            (
                "end: {{outcome}}",
                f"sum by (outcome) (max by ({PLACE}, outcome) ({per_minute('dispatcher_jobs_ended_total')}))",
            ),
        ],
    ),
    Panel(
        "Jobs by state",
        "Finished Jobs stay for TOMBSTONE_SECONDS.",
        [("{{state}}", f"sum by (state) (max by ({PLACE}, queue, state) ({of('dispatcher_jobs')}))")],
        stacked=True,
    ),
    Panel(
        "Answers to creates per minute",
        "Answers of the API server to creates of Jobs, by their meaning.",
        [("{{outcome}}", f"sum by (outcome) ({per_minute('dispatcher_job_creates_total')})")],
    ),
    Panel(
        "Parked rows by reason",
        "Rows that a person, the row or its template must change.",
        [("{{reason}}", f"sum by (reason) (max by ({PLACE}, reason) ({of('dispatcher_parked_tasks')}))")],
    ),
    Panel(
        "Cycle time",
        "Time to read rows and to plan one cycle.",
        [
            ("half of them", quantile(0.5, "dispatcher_cycle_seconds")),
            ("99 of 100", quantile(0.99, "dispatcher_cycle_seconds")),
        ],
        "s",
    ),
    Panel(
        "Failed requests to Kubernetes per minute",
        "By kind of object and code; none: there was no answer. 404 and 409 are normal answers to some questions.",
        [
            (
                "{{resource}} {{code}}",
                f"sum by (resource, code) ({per_minute('dispatcher_kube_requests_total', FAILED)})",
            )
        ],
    ),
    Panel(
        "Time of requests to Kubernetes",
        "99 of 100 requests take no longer.",
        [("{{verb}}", quantile(0.99, "dispatcher_kube_request_seconds", "verb"))],
        "s",
    ),
    Panel(
        "Age of stores",
        "Time since the API server proved a store to be current. At 100 s a program stops to decide by it.",
        [("{{resource}}", f"max by (resource) ({of('dispatcher_store_age_seconds')})")],
        "s",
    ),
    Panel(
        "Rounds with a fault per minute",
        "By component. The program tries again; its log has the fault.",
        [("{{component}}", f"sum by (component) ({per_minute('dispatcher_faults_total')})")],
    ),
    Panel(
        "Janitor",
        "Time since its last round, and the rows that it changed, per minute.",
        [
            (
                "seconds since the last round",
                f"time() - max by ({PLACE}) ({of('dispatcher_last_round_timestamp_seconds', OF_JANITOR)})",
            ),
            ("rows: {{action}}", f"sum by (action) ({per_minute('dispatcher_janitor_rows_total')})"),
        ],
    ),
    Panel(
        "Extender",
        "Time of 99 of 100 answers to kube-scheduler by outcome. It waits for one second.",
        [("{{verb}} {{outcome}}", quantile(0.99, "dispatcher_extender_request_seconds", "verb", "outcome"))],
        "s",
    ),
    Panel(
        "Reservations by phase",
        "NodeReservations of the cluster.",
        [("{{phase}}", f"max by (phase) ({of('dispatcher_reservations')})")],
    ),
    Panel(
        "Memory of the programs",
        "Resident memory of each program.",
        [
            (
                "{{pod}} {{instance}}",
                f"{of('process_resident_memory_bytes')} and on ({PLACE}, instance) {of('dispatcher_build_info')}",
            )
        ],
        "bytes",
    ),
)


def board() -> str:
    made = {
        "title": "Dispatcher",
        "uid": "pg-job-dispatcher",
        "tags": ["dispatcher"],
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": list(variables())},
        "panels": [drawn(panel, place) for place, panel in enumerate(PANELS)],
    }
    return json.dumps(made, indent=1) + "\n"


def variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    chosen = ""
    for name in ("namespace", "installation"):
        yield {
            "name": name,
            "type": "query",
            "datasource": SOURCE,
            "query": f"label_values(dispatcher_build_info{chosen}, {name})",
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",  # also series without the label
            "current": {"text": "All", "value": "$__all"},
        }
        chosen = f'{{{name}=~"${name}"}}'


def drawn(panel: Panel, place: int) -> dict[str, Any]:
    row, column = divmod(place, COLUMNS)
    shown: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.kind == "timeseries":
        lines = {"lineWidth": 1, "fillOpacity": 20 if panel.stacked else 0, "showPoints": "never"}
        shown["custom"] = {**lines, "stacking": {"mode": "normal" if panel.stacked else "none"}}
    return {
        "id": place + 1,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.meaning,
        "datasource": SOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": shown, "overrides": []},
        "options": options_of(panel.kind),
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for number, (legend, query) in enumerate(panel.queries)
        ],
    }


def options_of(kind: str) -> dict[str, Any]:
    if kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "none"}
    return {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


if __name__ == "__main__":
    BOARD.write_text(board(), encoding="utf-8")
