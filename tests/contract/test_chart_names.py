"""The chart with names that YAML reads as something else, and with each setting that a program knows."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dispatcher import extender
from dispatcher_demo.node.containers import resolve
from tests.controlplane.api import Json
from tests.rig.deployed import CHART, RENDERED, helm, pod_templates, rendered

SETTINGS: frozenset[str] = frozenset(
    json.loads((CHART / "files" / "names.json").read_text(encoding="utf-8"))["settings"]
)
OF_VALUES = {
    "INSTALLATION", "NAMESPACE", "TASK_SECRET", "DATABASE_URL", "DATABASE_URL_FILE", "TEMPLATES_DIR", "SCHEDULER_NAME",
}  # fmt: skip
OF_CHART = {"LISTEN_ADDRESS", "EXTENDER_ADDRESS", "EXTENDER_TLS_DIR", "KUBECONFIG", "KUBE_CONTEXT"}
READ_BY_EXTENDER = OF_CHART | {"LOG_LEVEL"}


def named(name: str) -> Json:
    """Values in which everything that has a name has this one."""
    programs = ("run", "janitor", "migrate", "scheduler", "cacheKeeper")
    secrets = ("database", "janitorDatabase", "migrateDatabase", "taskDatabase")
    lists = ("serviceAccounts", "secrets", "configMaps", "priorityClasses", "runtimeClasses", "schedulers")
    return {
        "installation": name, "jobsNamespace": name, "imagePullSecrets": [name],
        "secrets": dict.fromkeys(secrets, name), "image": {"repository": name, "tag": name},
        "policy": {one: [name] for one in lists},
        **{one: {"priorityClassName": name} for one in programs},
    }  # fmt: skip


def kinds(part: object) -> object:
    """The part with the type of each value in its place."""
    if isinstance(part, dict):
        return {key: kinds(value) for key, value in part.items()}
    return [kinds(one) for one in part] if isinstance(part, list) else type(part).__name__


@pytest.mark.parametrize("name", ["1", "true", "null", "1e5"])
def test_name_that_yaml_reads_as_something_else_stays_a_name(name: str) -> None:
    plain, odd = (rendered("everything", one, **named(one)) for one in ("plain", name))
    for before, after in zip(plain, odd, strict=True):
        assert kinds(after) == kinds(before)


def test_scheduler_that_is_given_as_a_number_is_a_name_in_the_policy() -> None:
    (policy,) = [
        one["spec"]
        for one in rendered(only="policy", settings={"SCHEDULER_NAME": 5})
        if one["kind"] == "ValidatingAdmissionPolicy"
    ]
    variables = {one["name"]: one["expression"] for one in policy["variables"]}
    assert json.loads(variables["schedulers"])[-1] == "5"


@pytest.mark.parametrize("value", ["database", "janitorDatabase", "migrateDatabase", "taskDatabase"])
@pytest.mark.parametrize("name", ["", "bad: x", "Database", "a_b", "a/b"])
def test_secret_has_a_name_that_secrets_can_have(value: str, name: str) -> None:
    done = helm("template", "dispatcher", CHART, "--values", "-", stdin=json.dumps({"secrets": {value: name}}))
    if (value, name) == ("taskDatabase", ""):
        assert done.returncode == 0, "tasks may go without"
    else:
        assert f'secrets.{value} is "{name}": it must be the name of a Secret' in done.stderr


def refused(settings: Mapping[str, str]) -> str | None:
    """The first of these settings that the chart refuses; None: it takes all."""
    values = json.dumps({"settings": settings})
    base = ("--values", RENDERED / "values" / "everything.yaml", "--values", "-")
    done = helm("template", "dispatcher", CHART, *base, stdin=values)
    found = re.search(r"settings\.(\w+) cannot be set here: (the value \S+ sets it|the |our )", done.stderr)
    assert found or done.returncode == 0, done.stderr
    return found[1] if found else None


def environments(**values: Any) -> dict[str, Mapping[str, str]]:
    """The variables of each program, by its command."""
    objects = rendered("everything", **values)
    maps = {("ConfigMap", one["metadata"]["name"]): one["data"] for one in objects if one["kind"] == "ConfigMap"}
    pods = pod_templates(objects)
    return {command: resolve(pod["spec"]["containers"][0], pod, maps) for command, pod in pods.items()}


def test_setting_reaches_the_programs_that_read_it_or_is_refused() -> None:
    given = dict.fromkeys(sorted(SETTINGS), "x")
    left_out = set()
    while (name := refused(given)) is not None:
        left_out.add(name)
        del given[name]
    assert left_out == OF_VALUES | OF_CHART
    found = environments(settings=given)
    for name in given:
        readers = {"run", "janitor", "cache-keeper"} | ({"extender"} if name in READ_BY_EXTENDER else set())
        assert readers <= {command for command, own in found.items() if own.get(f"DISPATCHER_{name}") == "x"}, name


def test_extender_reads_the_settings_that_the_chart_hands_to_it() -> None:
    """Its configuration is made by another command."""
    sources = [one for one in Path(extender.__path__[0]).glob("*.py") if one.name != "configuration.py"]
    text = "\n".join(one.read_text(encoding="utf-8") for one in sources)
    found = set(re.findall(r"(?<![._])\bsettings\.([a-z_]+(?:\.[a-z_]+)?)", text)) - {"definition"}
    assert found == {"kube", "extender", "tls_dir", "service.listen_address"}, (
        "add it to READ_BY_EXTENDER, and to the chart"
    )


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("run", "LISTEN_ADDRESS"), ("janitor", "TEMPLATES_DIR"), ("migrate", "DATABASE_URL"),
        ("scheduler", "EXTENDER_ADDRESS"), ("cacheKeeper", "INSTALLATION"),
    ],
)  # fmt: skip
def test_variable_of_a_program_sets_nothing_that_the_chart_sets(program: str, name: str) -> None:
    values = {program: {"extraEnv": [{"name": f"DISPATCHER_{name}", "value": "x"}]}}
    done = helm("template", "dispatcher", CHART, "--values", "-", stdin=json.dumps(values))
    assert f"{program}.extraEnv cannot set DISPATCHER_{name}: " in done.stderr


def test_log_level_of_the_extender_stands_once() -> None:
    level = {"name": "DISPATCHER_LOG_LEVEL", "value": "warning"}
    values: Json = {"settings": {"LOG_LEVEL": "debug"}, "scheduler": {"extraEnv": [level]}}
    spec = pod_templates(rendered("everything", **values))["extender"]["spec"]
    assert spec["containers"][0]["env"] == [level]


def test_login_is_mounted_with_every_key_of_its_secret() -> None:
    """A private authority stands beside the URL, as docs/install.md says."""
    for command in ("run", "janitor", "migrate"):
        spec = pod_templates(rendered("everything"))[command]["spec"]
        (volume,) = [one["secret"] for one in spec["volumes"] if one["name"] == "database"]
        (mount,) = [one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "database"]
        assert volume.keys() == {"secretName", "defaultMode"}
        assert (mount["mountPath"], "subPath" in mount) == ("/etc/dispatcher/database", False)


def test_chart_looks_up_nothing_that_an_installer_may_be_refused() -> None:
    """helm ends at a 403. Whoever installs makes what is looked up in the release's namespace."""
    texts = [one.read_text(encoding="utf-8") for one in (CHART / "templates").iterdir()]
    found = re.findall(r'lookup "(\S+)" "(\w+)" (\S+)', "\n".join(texts))
    ours = ".Release.Namespace"
    assert {*found} == {("v1", "Namespace", '""'), ("v1", "ConfigMap", ours), ("apps/v1", "Deployment", ours)}
