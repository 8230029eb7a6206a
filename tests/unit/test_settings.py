"""Settings (docs/settings.md). The environment gives all settings, or all faults at once."""

import os
from collections.abc import Mapping

import pytest

from dispatcher.model.errors import SettingsError
from dispatcher.settings.definition import setting
from dispatcher.settings.loading import known_names, load, read_field, reread, unknown_names
from tests.unit.reading_settings import faults_of, read

INTERFACE_1 = {
    "DATABASE_URL": "—", "KUBECONFIG": "—", "KUBE_CONTEXT": "—", "NAMESPACE": "—", "INSTALLATION": "dispatcher",
    "IMAGE": "—", "CPU_REQUEST": "2500m", "MEMORY_REQUEST": "2048Mi", "CPU_LIMIT": "3000m", "MEMORY_LIMIT": "2048Mi",
    "TASK_SECRET": "—", "TEMPLATES_DIR": "—", "PASS_ENV": "—", "MAX_JOBS": "100", "MAX_PENDING": "1000",
    "DEMAND": "auto",
    "PENDING_MODE": "unschedulable", "PENDING_GRACE_SECONDS": "30", "CHECK_ROOM": "true", "TIMEOUT_SECONDS": "3600",
    "START_DEADLINE_SECONDS": "1800", "MAX_LAUNCHES": "3", "MAX_JOB_BYTES": "16Ki",
    "NODE_LOST_SECONDS": "0", "TOMBSTONE_SECONDS": "300",
    "PARK_SECONDS": "3600", "RETENTION_DAYS": "0", "LEASE_SECONDS": "15",
    "POLL_SECONDS": "2", "KUBE_WRITES_PER_SECOND": "50", "LISTEN_ADDRESS": ":8080", "SCHEDULER_NAME": "—",
    "RUN_AS_NON_ROOT": "false", "LOG_LEVEL": "info", "CACHE_ROOT": "—", "CACHE_HIGH_PERCENT": "80",
    "CACHE_LOW_PERCENT": "70", "CACHE_MAX_AGE_DAYS": "30", "CACHE_MAX_BYTES": "—", "CACHE_COPIES": "3",
    "NODE_SELECTOR": "—", "PROMETHEUS_URL": "—",
    "PRIVATE_MACHINE_LABEL": "dispatcher.internal/private-machine", "EXTENDER_ADDRESS": "127.0.0.1:8888",
    "SPECIAL_MACHINE_LABEL": "dispatcher.internal/special-machine", "EXTENDER_TLS_DIR": "—",
    "DASHBOARD_ADDRESS": "127.0.0.1:8081", "DASHBOARD_HOSTS": "—", "DASHBOARD_PREFIX": "—", "API_URL": "—",
}  # fmt: skip


def test_every_setting_has_the_default_of_the_interface() -> None:
    assert {source.name: source.default for source in read({}).sources} == INTERFACE_1


def test_settings_without_variables_are_all_defaults_without_warning() -> None:
    loaded = read({})
    assert {source.origin for source in loaded.sources} == {"default"}
    assert loaded.warnings == ()
    assert all(source.value == source.default and source.meaning for source in loaded.sources)


def test_an_empty_variable_counts_as_unset() -> None:
    assert read(dict.fromkeys(INTERFACE_1, "")).settings == read({}).settings


GOOD = [
    ("KUBECONFIG", "/etc/kube", "kube", "kubeconfig", "/etc/kube"),
    ("NAMESPACE", "jobs-1", "kube", "namespace", "jobs-1"),
    ("INSTALLATION", "a" * 16, "kube", "installation", "a" * 16),
    ("INSTALLATION", "0-9", "kube", "installation", "0-9"),
    ("KUBE_WRITES_PER_SECOND", "1", "kube", "writes_per_second", 1),
    ("CHECK_ROOM", "false", "kube", "check_room", False),
    ("IMAGE", "app:1", "jobs", "image", "app:1"),
    ("CPU_REQUEST", "1.5", "jobs", "cpu_request", "1.5"),
    ("MEMORY_LIMIT", "4Gi", "jobs", "memory_limit", "4Gi"),
    ("PASS_ENV", " S3_*, DB_HOST ,,", "jobs", "pass_env", ("S3_*", "DB_HOST")),
    ("TIMEOUT_SECONDS", "604800", "jobs", "timeout_seconds", 604800),
    ("START_DEADLINE_SECONDS", "10", "jobs", "start_deadline_seconds", 10),
    ("MAX_LAUNCHES", "1", "jobs", "max_launches", 1),
    ("MAX_JOB_BYTES", "256Ki", "jobs", "max_job_bytes", "256Ki"),
    ("NODE_LOST_SECONDS", "300", "jobs", "node_lost_seconds", 300),
    ("SCHEDULER_NAME", "mine", "placement", "scheduler_name", "mine"),
    ("CACHE_ROOT", "/var/cache/tasks.d", "placement", "cache_root", "/var/cache/tasks.d"),
    ("CACHE_COPIES", "10", "placement", "cache_copies", 10),
    ("CACHE_HIGH_PERCENT", "99", "keeper", "high_percent", 99),
    ("CACHE_LOW_PERCENT", "1", "keeper", "low_percent", 1),
    ("CACHE_MAX_AGE_DAYS", "0", "keeper", "max_age_days", 0),
    ("CACHE_MAX_BYTES", "20Gi", "keeper", "max_bytes", 20 * 2**30),
    ("PRIVATE_MACHINE_LABEL", "example.org/mine", "placement", "private_machine_label", "example.org/mine"),
    ("SPECIAL_MACHINE_LABEL", "gpu", "placement", "special_machine_label", "gpu"),
    ("NODE_SELECTOR", "example.org/pool=batch-1", "placement", "node_selector", "example.org/pool=batch-1"),
    ("NODE_SELECTOR", "node-role.example/worker=", "placement", "node_selector", "node-role.example/worker="),
    (
        "PROMETHEUS_URL",
        "http://prometheus.monitoring:9090",
        "placement",
        "prometheus_url",
        "http://prometheus.monitoring:9090",
    ),
    (
        "PROMETHEUS_URL",
        "https://[::1]/mimir/prometheus",
        "placement",
        "prometheus_url",
        "https://[::1]/mimir/prometheus",
    ),
    ("EXTENDER_ADDRESS", "[::1]:8443", "extender", "address", "[::1]:8443"),
    ("EXTENDER_ADDRESS", "localhost:1", "extender", "address", "localhost:1"),
    ("EXTENDER_TLS_DIR", "/etc/tls", "extender", "tls_dir", "/etc/tls"),
    ("MAX_JOBS", "0", "admission", "max_jobs", 0),
    ("MAX_PENDING", "0", "admission", "max_pending", 0),
    ("PENDING_MODE", "any", "admission", "pending_mode", "any"),
    ("PENDING_GRACE_SECONDS", "0.5", "admission", "pending_grace_seconds", 0.5),
    ("POLL_SECONDS", "0.25", "admission", "poll_seconds", 0.25),
    ("TOMBSTONE_SECONDS", "0", "sweep", "tombstone_seconds", 0.0),
    ("LISTEN_ADDRESS", "127.0.0.1:0", "service", "listen_address", "127.0.0.1:0"),
    ("LISTEN_ADDRESS", "[::1]:9000", "service", "listen_address", "[::1]:9000"),
    ("LISTEN_ADDRESS", ":8080", "service", "listen_address", ":8080"),
    ("DASHBOARD_ADDRESS", "0.0.0.0:9000", "service", "dashboard_address", "0.0.0.0:9000"),
    ("DASHBOARD_HOSTS", "tasks.example, tasks", "service", "dashboard_hosts", ("tasks.example", "tasks")),
    ("DASHBOARD_HOSTS", "10.1.2.3,[fd00::1]", "service", "dashboard_hosts", ("10.1.2.3", "[fd00::1]")),
    ("TASK_SECRET", "task-database.2", "jobs", "task_secret", "task-database.2"),
    ("DASHBOARD_PREFIX", "/batch", "service", "dashboard_prefix", "/batch"),
    ("API_URL", "http://dispatcher.example", "service", "api_url", "http://dispatcher.example"),
    ("LOG_LEVEL", "debug", "service", "log_level", "debug"),
]


@pytest.mark.parametrize(("name", "written", "component", "field", "value"), GOOD)
def test_a_variable_sets_its_field(name: str, written: str, component: str, field: str, value: object) -> None:
    loaded = read({name: written})
    assert getattr(getattr(loaded.settings, component), field) == value
    assert {source.name for source in loaded.sources if source.origin == "environment"} == {name}


def test_a_secret_is_never_shown() -> None:
    loaded = read({"DATABASE_URL": "postgresql://u:hunter2@db/x"})
    assert loaded.settings.database.url == "postgresql://u:hunter2@db/x"
    assert loaded.sources[0].value == "(hidden)"
    assert "hunter2" not in str(loaded.sources)


def test_a_secret_from_a_file_loses_its_last_line_break() -> None:
    loaded = read({"DATABASE_URL_FILE": "/run/url"}, {"/run/url": "postgresql://db/x\n"})
    assert loaded.settings.database.url == "postgresql://db/x"
    assert (loaded.sources[0].value, loaded.sources[0].origin) == ("(hidden)", "file /run/url")


def test_a_secret_that_is_set_twice_is_a_fault() -> None:
    (fault,) = faults_of({"DATABASE_URL": "a", "DATABASE_URL_FILE": "/run/url"}, {"/run/url": "b"})
    assert fault == "DISPATCHER_DATABASE_URL and DISPATCHER_DATABASE_URL_FILE are both set: choose one"


def test_a_file_that_cannot_be_read_is_a_fault() -> None:
    assert faults_of({"DATABASE_URL_FILE": "/absent"}) == ("DISPATCHER_DATABASE_URL_FILE: no such file: /absent",)


@pytest.mark.parametrize("written", ["", "\n", "  "])
def test_empty_file_of_a_secret_is_a_fault_at_the_start_and_later(written: str) -> None:
    """Without a URL, libpq connects to this machine."""
    environ, files = {"DATABASE_URL_FILE": "/run/url"}, {"/run/url": written}
    told = "/run/url is empty: write the value into it"
    assert faults_of(environ, files) == (f"DISPATCHER_DATABASE_URL_FILE: {told}",)
    with pytest.raises(OSError, match=told):
        reread("DATABASE_URL", "old", {"DISPATCHER_DATABASE_URL_FILE": "/run/url"}, files.__getitem__)


def test_file_of_a_secret_that_is_no_text_is_a_fault_at_the_start_and_later() -> None:
    def not_text(_: str) -> str:
        return b"\xff".decode()

    with pytest.raises(SettingsError, match="DISPATCHER_DATABASE_URL_FILE"):
        load({"DISPATCHER_DATABASE_URL_FILE": "/run/url"}, not_text)
    with pytest.raises(OSError, match="/run/url is not a text file"):
        reread("DATABASE_URL", "old", {"DISPATCHER_DATABASE_URL_FILE": "/run/url"}, not_text)


def test_variable_that_is_no_utf_8_is_a_fault() -> None:
    (fault,) = faults_of({"DATABASE_URL": os.fsdecode(b"postgresql://u:hunter2@db/M\xfcller")})
    assert fault == "DISPATCHER_DATABASE_URL: no UTF-8 at character 28: write it in UTF-8"


@pytest.mark.parametrize("empty", ["", " "])
def test_empty_variable_is_unset_beside_the_other_one_of_a_secret(empty: str) -> None:
    files = {"/run/url": "postgresql://file"}
    of_file = read({"DATABASE_URL": empty, "DATABASE_URL_FILE": "/run/url"}, files).settings.database.url
    of_variable = read({"DATABASE_URL": "postgresql://here", "DATABASE_URL_FILE": empty}).settings.database.url
    assert (of_file, of_variable) == ("postgresql://file", "postgresql://here")
    assert reread("DATABASE_URL", "old", {"DISPATCHER_DATABASE_URL_FILE": ""}, files.__getitem__) == "old"


def test_reread_reads_a_file_again_and_keeps_a_variable() -> None:
    environ, files = {"DISPATCHER_DATABASE_URL_FILE": "/run/url"}, {"/run/url": "new\n"}
    assert reread("DATABASE_URL", "old", environ, files.__getitem__) == "new"
    assert reread("DATABASE_URL", "old", {}, files.__getitem__) == "old"
    assert reread("DATABASE_URL", None, {}, files.__getitem__) is None


def test_a_setting_that_is_no_secret_has_no_file_variable() -> None:
    assert read({"IMAGE_FILE": "/run/image"}).warnings[0].startswith("DISPATCHER_IMAGE_FILE is not a setting")


def test_the_fault_of_a_secret_hides_its_value() -> None:
    class Secret:
        metadata = setting("PIN", None, int, "", secret=True).metadata
        default = None

    with pytest.raises(ValueError, match=r"DISPATCHER_PIN is \(hidden\)"):
        read_field(Secret, {"DISPATCHER_PIN": "hunter2"}, str)


# Unknown names


def test_an_unknown_name_is_a_warning_with_the_nearest_known_one() -> None:
    assert read({"MAX_JOB": "3"}).warnings == (
        "DISPATCHER_MAX_JOB is not a setting; did you mean DISPATCHER_MAX_JOBS?",
    )


def test_an_unknown_name_without_a_similar_one_is_a_warning() -> None:
    assert read({"Q" * 60: "1"}).warnings == (f"DISPATCHER_{'Q' * 60} is not a setting",)


def test_variables_without_our_prefix_are_ignored() -> None:
    assert list(unknown_names(["PATH", "MAX_JOBS", "dispatcher_max_jobs"])) == []


@pytest.mark.parametrize(
    "name",
    ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_METRICS", "PORT", "PORT_8080_TCP", "PORT_8080_TCP_ADDR",
     "EXTENDER_SERVICE_HOST", "EXTENDER_SERVICE_PORT_HTTPS", "EXTENDER_PORT", "EXTENDER_PORT_8888_TCP_PROTO"],
)  # fmt: skip
def test_variables_that_kubernetes_adds_for_services_are_ignored(name: str) -> None:
    assert read({name: "tcp://10.0.0.1:80"}).warnings == ()


def test_known_names_are_the_settings_and_the_files_of_secrets() -> None:
    assert known_names() == {f"DISPATCHER_{name}" for name in (*INTERFACE_1, "DATABASE_URL_FILE")}


def test_values_are_shown_as_they_are_written() -> None:
    written = {"CHECK_ROOM": "false", "PASS_ENV": "A,B", "POLL_SECONDS": "0.25", "MAX_JOBS": "7", "IMAGE": "app"}
    shown = {source.name: source.value for source in read(written).sources}
    assert {name: shown[name] for name in written} == written


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
    ("MEMORY_REQUEST", "-1Gi", "must be an amount of bytes from 1Mi"),
    ("MEMORY_LIMIT", "2048m", "must be an amount of bytes from 1Mi"),
    ("TIMEOUT_SECONDS", "604801", "from 1 to 604800"),
    ("TIMEOUT_SECONDS", "1.5", "a whole number"),
    ("TIMEOUT_SECONDS", "1_000", "a whole number"),
    ("MAX_JOBS", "-1", "from 0 to 100000"),
    ("MAX_JOBS", "many", "a whole number"),
    ("MAX_LAUNCHES", "9" * 5000, "a whole number"),
    ("MAX_JOB_BYTES", "257Ki", "from 1Ki to 256Ki"),
    ("MAX_JOB_BYTES", "1", "from 1Ki to 256Ki"),
    ("PENDING_MODE", "ANY", "must be one of unschedulable, any"),
    ("POLL_SECONDS", "0", "seconds, a number from 0.05 to 240"),
    ("POLL_SECONDS", "nan", "must be seconds"),
    ("POLL_SECONDS", "2s", "must be seconds"),
    ("TOMBSTONE_SECONDS", "inf", "must be seconds"),
    ("LISTEN_ADDRESS", "8080", "must be HOST:PORT"),
    ("LISTEN_ADDRESS", "localhost", "must be HOST:PORT"),
    ("LOG_LEVEL", "loud", "must be one of debug, info, warning, error"),
    ("CACHE_HIGH_PERCENT", "100", "from 1 to 99"),
    ("CACHE_LOW_PERCENT", "0", "from 1 to 98"),
    ("CACHE_MAX_BYTES", "20", "must be an amount of bytes from 1Mi, such as 20Gi"),
    ("CACHE_COPIES", "0", "from 1 to 10"),
    ("SCHEDULER_NAME", "Mine", "a DNS name in lower case"),
    *(
        ("CACHE_ROOT", path, "an absolute path of plain names")
        for path in ("/", "cache", "/var/../etc", "/var/./x", "/var/", "//var", "/a b", "/..", "/a/..", "/var\n")
    ),
    ("PRIVATE_MACHINE_LABEL", "Example.org/x", "a label's key"),
    ("SPECIAL_MACHINE_LABEL", "-x", "a label's key"),
    ("NODE_SELECTOR", "pool", "LABEL=VALUE"),
    ("NODE_SELECTOR", "pool=a,b=c", "LABEL=VALUE"),
    ("PROMETHEUS_URL", "prometheus:9090", "an http or https URL"),
    ("PROMETHEUS_URL", "http://user:secret@prometheus", "an http or https URL"),
    *(
        ("PROMETHEUS_URL", f"http://{host}:9090", "an http or https URL")
        for host in ("prometheus..monitoring", ".monitoring", ".", "a" * 64, "")
    ),
    ("EXTENDER_ADDRESS", "node..example:8888", "must be HOST:PORT"),
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
            "CPU_REQUEST", "MEMORY_REQUEST", "CPU_LIMIT", "MEMORY_LIMIT", "TASK_SECRET", "PASS_ENV", "TIMEOUT_SECONDS",
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


ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


@pytest.mark.parametrize(
    ("environ", "files", "value", "origin"),
    [
        ({}, {ACCOUNT: "ours\n"}, "ours", "service account"),
        ({"DISPATCHER_NAMESPACE": "jobs"}, {ACCOUNT: "ours"}, "jobs", "environment"),
        ({"DISPATCHER_KUBECONFIG": "/config"}, {ACCOUNT: "ours"}, None, "default"),
        ({}, {}, None, "default"),
    ],
)
def test_namespace_in_a_pod_is_that_of_its_service_account(
    environ: Mapping[str, str], files: Mapping[str, str], value: str | None, origin: str
) -> None:
    def read_file(path: str) -> str:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path]

    loaded = load({"KUBERNETES_SERVICE_HOST": "10.0.0.1", **environ}, read_file)
    (source,) = [source for source in loaded.sources if source.name == "NAMESPACE"]
    assert (loaded.settings.kube.namespace, source.origin) == (value, origin)


def test_namespace_outside_a_pod_is_not_read_from_a_file() -> None:
    assert load({}, {ACCOUNT: "ours"}.__getitem__).settings.kube.namespace is None


@pytest.mark.parametrize("address", [":8888", "0.0.0.0:8888", "10.0.0.7:8888", "[::]:8888", "extender.example:8888"])
def test_the_extender_needs_certificates_off_loopback(address: str) -> None:
    (fault,) = faults_of({"EXTENDER_ADDRESS": address})
    assert fault == f"DISPATCHER_EXTENDER_ADDRESS is {address!r}: off loopback DISPATCHER_EXTENDER_TLS_DIR must be set"
    assert read({"EXTENDER_ADDRESS": address, "EXTENDER_TLS_DIR": "/etc/tls"}).settings.extender.address == address
