"""Faults of settings: each names its variable, its value and the rule, and all come at once."""

import pytest

from dispatcher.model.errors import SettingsError
from dispatcher.settings.loading import load
from tests.unit.reading_settings import faults_of, read

BAD = [
    ("NAMESPACE", "Jobs", "a DNS label of at most 63 characters"),
    ("NAMESPACE", "a" * 64, "a DNS label of at most 63 characters"),
    ("INSTALLATION", "a" * 17, "a DNS label of at most 16 characters"),
    ("INSTALLATION", "blue-", "a DNS label of at most 16 characters"),
    ("INSTALLATION", "blue\n", "a DNS label of at most 16 characters"),
    ("KUBE_WRITES_PER_SECOND", "0", "a whole number from 1 to 10000"),
    ("CHECK_ROOM", "yes", "true or false"),
    ("CHECK_ROOM", "True", "true or false"),
    ("CPU_REQUEST", "lots", "not a Kubernetes quantity"),
    ("CPU_LIMIT", "0", "must be above 0"),
    ("MEMORY_REQUEST", "-1Gi", "must be above 0"),
    ("TIMEOUT_SECONDS", "604801", "from 1 to 604800"),
    ("TIMEOUT_SECONDS", "1.5", "a whole number"),
    ("TIMEOUT_SECONDS", "1_000", "a whole number"),
    ("MAX_JOBS", "-1", "from 0 to 100000"),
    ("MAX_JOBS", "many", "a whole number"),
    ("MAX_LAUNCHES", "9" * 5000, "a whole number"),
    ("MAX_JOB_BYTES", "257Ki", "from 1Ki to 256Ki"),
    ("MAX_JOB_BYTES", "1", "from 1Ki to 256Ki"),
    ("PENDING_MODE", "ANY", "must be one of unschedulable, any"),
    ("POLL_SECONDS", "0", "seconds, a number from 0.05 to 3600"),
    ("POLL_SECONDS", "nan", "must be seconds"),
    ("POLL_SECONDS", "2s", "must be seconds"),
    ("TOMBSTONE_SECONDS", "inf", "must be seconds"),
    ("LISTEN_ADDRESS", "8080", "must be HOST:PORT"),
    ("LISTEN_ADDRESS", "localhost", "must be HOST:PORT"),
    ("LOG_LEVEL", "loud", "must be one of debug, info, warning, error"),
    ("CACHE_HIGH_PERCENT", "100", "from 1 to 99"),
    ("CACHE_LOW_PERCENT", "0", "from 1 to 98"),
    ("CACHE_MAX_BYTES", "0", "must be an amount of bytes, such as 20Gi"),
    ("CACHE_COPIES", "0", "from 1 to 10"),
    ("SCHEDULER_NAME", "Mine", "a DNS name in lower case"),
    *(
        ("CACHE_ROOT", path, "an absolute path of plain names")
        for path in (
            "/",
            "cache",
            "/var/../etc",
            "/var/./x",
            "/var/",
            "//var",
            "/a b",
            "/..",
            "/a/..",
            "/var\n",
        )
    ),
    ("PRIVATE_MACHINE_LABEL", "Example.org/x", "a label's key"),
    ("SPECIAL_MACHINE_LABEL", "-x", "a label's key"),
    ("NODE_SELECTOR", "pool", "LABEL=VALUE"),
    ("NODE_SELECTOR", "pool=", "LABEL=VALUE"),
    ("NODE_SELECTOR", "pool=a,b=c", "LABEL=VALUE"),
    ("PROMETHEUS_URL", "prometheus:9090", "an http or https URL"),
    ("PROMETHEUS_URL", "http://user:secret@prometheus", "an http or https URL"),
    ("EXTENDER_ADDRESS", "8888", "must be HOST:PORT"),
    *(
        ("DASHBOARD_HOSTS", host, "must be host names without scheme, port and *, such as tasks.example")
        for host in ("https://dash.example/", "dash.example:8443", "*.example", "a.example, b/c", "a b", "::1", "-a")
    ),
    *(("TASK_SECRET", name, "must be the name of a Secret") for name in ("Bad_Name", "a b", "-a", "a/b")),
    ("PASS_ENV", "S3_*, A=b", "must be globs of names of variables, such as S3_*; 'A=b' is none"),
    ("IMAGE", "app 1", "must be the name of an image, without spaces"),
]


@pytest.mark.parametrize(("name", "written", "rule"), BAD)
def test_a_fault_names_the_variable_the_value_and_the_rule(name: str, written: str, rule: str) -> None:
    (fault,) = faults_of({name: written})
    assert fault.startswith(f"DISPATCHER_{name} is {written[:80]!r}: ")
    assert rule in fault
    assert len(fault) < 250


def test_a_port_has_at_most_16_bits() -> None:
    assert "HOST:PORT" in faults_of({"LISTEN_ADDRESS": "0.0.0.0:65536"})[0]


def test_all_faults_come_at_once_in_the_order_of_the_settings() -> None:
    wrong = {name: written for name, written, _ in BAD}
    faults = faults_of(wrong | {"DATABASE_URL_FILE": "/absent"})
    assert [fault.split()[0].rstrip(":") for fault in faults] == [
        f"DISPATCHER_{name}"
        for name in (
            "DATABASE_URL_FILE", "NAMESPACE", "INSTALLATION", "KUBE_WRITES_PER_SECOND", "CHECK_ROOM", "IMAGE",
            "CPU_REQUEST", "MEMORY_REQUEST", "CPU_LIMIT", "TASK_SECRET", "PASS_ENV", "TIMEOUT_SECONDS",
            "MAX_JOB_BYTES", "MAX_LAUNCHES", "SCHEDULER_NAME",
            "CACHE_ROOT", "CACHE_COPIES", "PRIVATE_MACHINE_LABEL", "SPECIAL_MACHINE_LABEL", "NODE_SELECTOR",
            "PROMETHEUS_URL", "MAX_JOBS", "PENDING_MODE", "POLL_SECONDS", "TOMBSTONE_SECONDS", "CACHE_HIGH_PERCENT",
            "CACHE_LOW_PERCENT", "CACHE_MAX_BYTES", "EXTENDER_ADDRESS", "LISTEN_ADDRESS", "DASHBOARD_HOSTS",
            "LOG_LEVEL",
        )
    ]  # fmt: skip


def test_the_error_has_one_line_for_each_fault() -> None:
    with pytest.raises(SettingsError) as raised:
        read({"MAX_JOBS": "x", "LOG_LEVEL": "y"})
    assert str(raised.value).splitlines() == list(raised.value.faults)
    assert len(raised.value.faults) == 2


# Secrets


@pytest.mark.parametrize(("low", "high"), [("80", None), (None, "70"), ("50", "50")])
def test_low_mark_of_the_disk_is_below_the_high_one(low: str | None, high: str | None) -> None:
    marks = {"CACHE_LOW_PERCENT": low, "CACHE_HIGH_PERCENT": high}
    (fault,) = faults_of({name: mark for name, mark in marks.items() if mark})
    assert fault == (
        f"DISPATCHER_CACHE_LOW_PERCENT is {low or 70}: must be below DISPATCHER_CACHE_HIGH_PERCENT {high or 80}"
    )


def test_a_request_above_its_limit_is_a_fault() -> None:
    with pytest.raises(SettingsError) as caught:
        load({"DISPATCHER_CPU_REQUEST": "4", "DISPATCHER_MEMORY_REQUEST": "3Gi"}, str)
    assert caught.value.faults == (
        "DISPATCHER_CPU_REQUEST is '4': must not be over DISPATCHER_CPU_LIMIT '3000m'",
        "DISPATCHER_MEMORY_REQUEST is '3Gi': must not be over DISPATCHER_MEMORY_LIMIT '2048Mi'",
    )
