"""The chart without a cluster: what helm says of it and of wrong values, and what it makes of right ones."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from dispatcher.doctor.finding import read_installation
from docs.make_rendered import made
from tests.controlplane.api import Json
from tests.rig.deployed import CHART, RENDERED, VARIANTS, helm, pod_templates, rendered

DIGEST = "dispatcher.internal/settings"
SCRAPE = "prometheus.io/scrape"
OF_POD = {"namespace", "pod", "container"}
"""Labels that the Prometheus operator sets on each target of a PodMonitor, before its relabelings."""
RULES = yaml.safe_load((CHART / "files" / "rules.yaml").read_text(encoding="utf-8"))
LINUX = {"kubernetes.io/os": "linux"}
CIDRS = {"databaseCidr": "10.1.0.0/16", "apiServerCidr": "10.2.0.10/32"}


def refusal(**values: object) -> str:
    done = helm("template", "dispatcher", CHART, "--values", "-", stdin=json.dumps(values))
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_helm_finds_no_fault_with_the_chart(variant: str) -> None:
    done = helm("lint", "--strict", "--quiet", CHART, "--values", RENDERED / "values" / f"{variant}.yaml")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_rendered_files_are_what_helm_makes(variant: str) -> None:
    text = (RENDERED / f"{variant}.yaml").read_text(encoding="utf-8")
    assert text == made(variant), "run `make docs`"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"replica": 2}, "replica is not a value of this chart; the nearest name is replicas"),
        ({"settings": {"MAX_JOB": 1}}, "settings.MAX_JOB is not a value of this chart; the nearest name is MAX_JOBS"),
        ({"settings": {"max_jobs": 1}}, "the nearest name is MAX_JOBS"),
        ({"run": {"resource": {}}}, "run.resource is not a value of this chart; the nearest name is resources"),
        ({"policy": {"configmaps": []}}, "the nearest name is configMaps"),
        ({"queues": [{"name": "a"}, {"name": "b", "max_job": 1}]}, "queues.max_job is not a value of this chart"),
    ],
    ids=str,
)
def test_unknown_name_is_refused_with_the_nearest_one(values: Json, told: str) -> None:
    assert told in refusal(**values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"replicas": "two"}, "at '/replicas': got string, want integer"),
        ({"replicas": 0}, "at '/replicas': minimum: got 0, want 1"),
        ({"installation": "Big"}, "at '/installation': 'Big' does not match"),
        ({"installation": "seventeen-letters"}, "at '/installation': maxLength"),
        ({"image": {"digest": "latest"}}, "at '/image/digest'"),
        ({"janitor": {"enabled": "yes"}}, "at '/janitor/enabled': got string, want boolean"),
        ({"settings": {"MAX_JOBS": [1]}}, "at '/settings/MAX_JOBS': got array"),
        ({"templates": {"gpu": {}}}, "templates.gpu is not the name of a file: it is NAME.yaml"),
        ({"queues": [{"name": "Big"}]}, "at '/queues/0/name': 'Big' does not match"),
        ({"queues": [{"name": "a", "weight": 0}]}, "at '/queues/0/weight': minimum"),
        ({"queues": [{"weight": 1}]}, "at '/queues/0': missing property 'name'"),
        ({"policy": {"hostPathPrefixes": ["cache"]}}, "at '/policy/hostPathPrefixes/0'"),
        ({"policy": {"templates": {"a": {"secret": ["x"]}}}}, "at '/policy/templates/a'"),
        ({"policy": {"templates": {"a": {"secrets": "x"}}}}, "at '/policy/templates/a/secrets'"),
        ({"policy": {"templates": {"a": {"secrets": ["x'y"]}}}}, "at '/policy/templates/a/secrets/0'"),
        ({"policy": {"templates": {"a": {"hostPorts": [0]}}}}, "at '/policy/templates/a/hostPorts/0'"),
        ({"policy": {"templates": {"a": {"privileged": "yes"}}}}, "at '/policy/templates/a/privileged'"),
        ({"policy": {"templates": {"a'] || true || ['": {}}}}, "does not match pattern"),
        ({"networkPolicy": {"databaseCidr": "db"}}, "at '/networkPolicy/databaseCidr'"),
        ({"image": {"repository": "registry.example:5000/team/dispatcher:1"}}, "at '/image/repository'"),
        ({"image": {"repository": "registry.example/dispatcher@sha256:0"}}, "at '/image/repository'"),
        ({"image": {"tag": ":1"}}, "at '/image/tag'"),
        ({"enabled": False}, "at '/enabled'"),
        ({"run": {"extraEnv": [{"name": "A", "value": 5}]}}, "at '/run/extraEnv/0/value': got number, want string"),
        ({"run": {"extraEnv": [{"name": "A", "valuefrom": {}}]}}, "additional properties 'valuefrom' not allowed"),
        ({"run": {"tolerations": [{"keyy": "x"}]}}, "additional properties 'keyy' not allowed"),
        ({"run": {"resources": {"limit": {"cpu": 1}}}}, "additional properties 'limit' not allowed"),
        ({"networkPolicy": {"from": [{"podselector": {}}]}}, "additional properties 'podselector' not allowed"),
        ({"templates": {"a.b.yaml": {}}}, "templates.a.b.yaml is not the name of a file"),
        ({"queues": None}, "use --reset-then-reuse-values"),
        ({"settings": None}, "settings has no value: give it one, or remove the name"),
        ({"queues": None}, "queues has no value"),
        ({"janitor": None}, "janitor has no value"),
        ({"policy": {"secrets": None}}, "policy.secrets has no value"),
        ({"run": {"nodeSelector": None}}, "run.nodeSelector has no value"),
    ],
    ids=str,
)
def test_mistyped_value_is_refused_with_its_place(values: Json, told: str) -> None:
    assert told in refusal(**values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"settings": {"NAMESPACE": "x"}}, "settings.NAMESPACE cannot be set here: the value jobsNamespace sets it"),
        ({"settings": {"DATABASE_URL": "x"}}, "the value secrets.database sets it"),
        ({"settings": {"CHECK_ROOM": True}, "clusterRights": False}, "the value clusterRights sets it"),
        ({"settings": {"SCHEDULER_NAME": "x"}, "scheduler": {"enabled": True}}, "the value scheduler.enabled sets it"),
        ({"scheduler": {"enabled": True}, "clusterRights": False}, "scheduler.enabled needs clusterRights"),
        ({"networkPolicy": {"databaseCidr": "10.1.0.0/16"}}, "networkPolicy.databaseCidr closes nothing by itself"),
        ({"networkPolicy": {"apiServerCidr": "10.1.0.0/16"}}, "networkPolicy.apiServerCidr closes nothing by itself"),
        ({"networkPolicy": {"egress": [{}]}}, "networkPolicy.egress closes nothing by itself"),
        ({"installation": "default"}, "installation is default: every namespace has a ServiceAccount of this name"),
        ({"run": {"extraEnv": [{"name": "A"}, {"name": "A"}]}}, "run.extraEnv sets A, which is set already"),
        ({"cacheKeeper": {"extraEnv": [{"name": "NODE_NAME"}]}}, "cacheKeeper.extraEnv sets NODE_NAME"),
    ],
    ids=str,
)
def test_values_that_exclude_each_other_are_refused(values: Json, told: str) -> None:
    assert told in refusal(**values)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_chart_in_another_one_is_switched_by_its_condition(is_enabled: bool, tmp_path: Path) -> None:
    """helm hands the value of the condition down to the chart."""
    shutil.copytree(CHART, tmp_path / "charts" / "dispatcher")
    condition = {"name": "dispatcher", "version": ">=0.0.0-0", "condition": "dispatcher.enabled", "repository": ""}
    outer = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [condition]}
    (tmp_path / "Chart.yaml").write_text(json.dumps(outer), encoding="utf-8")
    values = json.dumps({"dispatcher": {"enabled": is_enabled}, "global": {"imageRegistry": "x"}})
    done = helm("template", "x", tmp_path, "--values", "-", stdin=values)
    assert done.returncode == 0, done.stderr
    assert ("kind: Deployment" in done.stdout) is is_enabled


def test_old_kubernetes_is_refused() -> None:
    done = helm("template", "dispatcher", CHART, "--kube-version", "1.30.9")
    assert done.returncode == 1
    assert "requires kubeVersion: >=1.31" in done.stderr


def test_numbers_of_settings_are_written_as_they_are_read() -> None:
    settings = {"MAX_JOBS": 1_000_000, "LEASE_SECONDS": 7.5, "CHECK_ROOM": True, "NODE_SELECTOR": "a=b"}
    for pod in (one for command, one in pod_templates(rendered(settings=settings)).items() if command != "migrate"):
        found = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        written = {name: found[f"DISPATCHER_{name}"] for name in settings}
        assert written == {"MAX_JOBS": "1000000", "LEASE_SECONDS": "7.5", "CHECK_ROOM": "true", "NODE_SELECTOR": "a=b"}


def test_program_has_its_settings_in_its_pod() -> None:
    """A Pod that is made anew while a rollout fails, or after `kubectl rollout undo`, has those of its rollout."""
    level = {"name": "DISPATCHER_LOG_LEVEL", "value": "debug"}
    values: Json = {"settings": {"LOG_LEVEL": "info", "MAX_JOBS": 7}, "run": {"extraEnv": [level]}}
    for command, pod in pod_templates(rendered("everything", **values)).items():
        (first, *_) = pod["spec"]["containers"]
        names = [one["name"] for one in first["env"]]
        assert "envFrom" not in first
        assert len(names) == len(set(names)), "the API server refuses a name that stands twice"
        read = {one["name"]: one.get("value") for one in first["env"]}
        expected = {"run": ("debug", "7"), "extender": ("info", None), "migrate": (None, None)}
        found = (read.get("DISPATCHER_LOG_LEVEL"), read.get("DISPATCHER_MAX_JOBS"))
        assert found == expected.get(command, ("info", "7")), command


@pytest.mark.parametrize("value", ["policy", "janitor"])
def test_deployment_tells_the_doctor_what_the_values_leave_out(value: str) -> None:
    chosen: tuple[Json, ...] = ({}, {value: {"enabled": False}})
    objects = [{one["kind"]: one for one in rendered(only="run", **values)} for values in chosen]
    with_all, without = (read_installation(one["Deployment"], "dispatcher", None) for one in objects)
    assert (with_all.wants_policy, with_all.wants_janitor) == (True, True)
    assert (without.wants_policy, without.wants_janitor) == (value != "policy", value != "janitor")


def test_template_that_is_given_as_a_text_is_mounted_as_it_is() -> None:
    """`--set-file` gives a text, and a file of values often an object."""
    text = "# of team a\napiVersion: batch/v1\nkind: Job # {{ not a template of helm }}\n"
    written = {"apiVersion": "batch/v1", "kind": "Job"}
    (found,) = [
        one["data"]
        for one in rendered(templates={"text.yaml": text, "object.yaml": written})
        if one["kind"] == "ConfigMap" and "text.yaml" in one["data"]
    ]
    assert (found["text.yaml"], yaml.safe_load(found["object.yaml"])) == (text, written)


def test_replicas_stand_on_different_nodes_where_there_are_some() -> None:
    """Replicas on one node end together. A cluster of one node runs them all the same."""
    for command in ("run", "extender"):
        template = pod_templates(rendered("everything"))[command]
        (spread,) = template["spec"]["topologySpreadConstraints"]
        assert (spread["topologyKey"], spread["maxSkew"]) == ("kubernetes.io/hostname", 1)
        assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
        assert spread["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def test_a_drain_takes_one_replica_at_a_time() -> None:
    objects = rendered("everything")
    budgets = [one["spec"] for one in objects if one["kind"] == "PodDisruptionBudget"]
    deployed = [one["spec"] for one in objects if one["kind"] == "Deployment" and one["spec"]["replicas"] > 1]
    assert len(budgets) == len(deployed) == 2
    for budget in budgets:
        (hit,) = [
            one
            for one in deployed
            if budget["selector"]["matchLabels"].items() <= one["template"]["metadata"]["labels"].items()
        ]
        assert (budget.get("maxUnavailable"), budget.get("minAvailable")) == (1, None)
        assert hit["replicas"] == 2


def test_every_server_has_its_probes_on_a_port_of_its_own() -> None:
    for template in pod_templates(rendered("everything")).values():
        for container in template["spec"]["containers"]:
            probes = [container[kind] for kind in ("livenessProbe", "readinessProbe") if kind in container]
            ports = {port.get("name"): port["containerPort"] for port in container.get("ports", ())}
            asked = [probe["httpGet"]["port"] for probe in probes]
            assert [port for port in asked if port not in ports and port not in ports.values()] == []
            expected = {"migrate": 0, "kube-scheduler": 1}  # the extender beside it says whether both can work
            assert len(probes) == expected.get(container["name"], 2), container["name"]


def policies(**values: object) -> dict[str, Json]:
    return {one["metadata"]["name"]: one["spec"] for one in rendered(only="network", networkPolicy=values)}


def test_networks_are_closed_with_both_addresses_alone() -> None:
    assert policies()["dispatcher"]["policyTypes"] == ["Ingress"]
    more = {"to": [{"ipBlock": {"cidr": "10.3.0.1/32"}}]}
    closed = policies(**CIDRS, egress=[more])["dispatcher"]
    assert closed["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in closed, "nothing comes in"
    names, *networks, last = closed["egress"]
    assert [port["port"] for port in names["ports"]] == [53, 53, 5353, 5353], "OpenShift's DNS Pods have 5353"
    assert [one["to"] for one in networks] == [[{"ipBlock": {"cidr": cidr}}] for cidr in CIDRS.values()]
    assert last == more


def test_metrics_are_open_to_the_named_sources_alone() -> None:
    source = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    (rule,) = policies(**{"from": [source]})["dispatcher-http"]["ingress"]
    assert rule == {"ports": [{"port": 8080, "protocol": "TCP"}], "from": [source]}


def test_metrics_are_closed_to_most_pods_by_default() -> None:
    """They name the queues, also those that are closed to others."""
    (rule,) = policies()["dispatcher-http"]["ingress"]
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert rule["from"] == [{"podSelector": {}}, monitoring]
    (opened,) = policies(**{"from": []})["dispatcher-http"]["ingress"]
    assert "from" not in opened


def test_every_pod_but_the_cache_keeper_is_locked_down() -> None:
    """Read-only root, no capability, RuntimeDefault, a user other than root, and a token only where it is used."""
    templates = pod_templates(rendered("everything"))
    assert templates.keys() == {"run", "janitor", "migrate", "extender", "cache-keeper"}
    del templates["cache-keeper"]
    for command, template in templates.items():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is (command != "migrate")
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_every_container_can_have_the_limits_that_a_quota_demands() -> None:
    limited = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    values: Json = dict.fromkeys(("run", "janitor", "migrate", "cacheKeeper"), limited)
    values["scheduler"] = {**limited, "kubeScheduler": limited}
    pods = pod_templates(rendered("everything", **values)).values()
    containers = [container for pod in pods for container in pod["spec"]["containers"]]
    assert len(containers) == len(pods) + 1, "kube-scheduler stands beside the extender"
    for container in containers:
        assert container["resources"]["limits"] == limited["resources"]["limits"], container["name"]


def test_programs_have_nodes_of_linux_alone() -> None:
    """Nodes of Windows cannot pull the image, and the cache keeper tolerates every taint."""
    for pod in pod_templates(rendered("everything")).values():
        assert pod["spec"]["nodeSelector"] == LINUX


def test_prometheus_is_told_once_where_to_ask() -> None:
    def annotated(variant: str) -> set[str]:
        templates = pod_templates(rendered(variant))
        return {name for name, one in templates.items() if SCRAPE in one["metadata"].get("annotations", {})}

    monitors = [one for one in rendered("everything") if one["kind"] == "PodMonitor"]
    assert (annotated("default"), annotated("everything"), len(monitors)) == ({"run", "janitor"}, set(), 1)


def monitor(installation: str = "dispatcher") -> Json:
    objects = rendered("everything", only="monitoring", installation=installation)
    (found,) = [one for one in objects if one["kind"] == "PodMonitor"]
    return found


def selects(selector: Json, labels: Json) -> bool:
    for expression in selector["matchExpressions"]:
        assert expression["operator"] == "NotIn"
        if labels.get(expression["key"]) in expression["values"]:
            return False
    return bool(selector["matchLabels"].items() <= labels.items())


def test_pod_monitor_selects_every_server_and_asks_a_port_that_it_has() -> None:
    spec = monitor()["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    templates = pod_templates(rendered("everything"))
    selected = {name: one for name, one in templates.items() if selects(spec["selector"], one["metadata"]["labels"])}
    assert selected.keys() == {"run", "janitor", "extender", "cache-keeper"}
    for template in selected.values():
        ports = [port["name"] for one in template["spec"]["containers"] for port in one.get("ports", ())]
        assert ports.count(endpoint["port"]) == 1


def test_pod_monitor_gives_each_series_the_labels_by_which_the_rules_group() -> None:
    """The operator's label is right because the PodMonitor selects Pods of its own namespace alone."""
    made = monitor(installation="other")
    (endpoint,) = made["spec"]["podMetricsEndpoints"]
    given = {one["targetLabel"]: one["replacement"] for one in endpoint["relabelings"]}
    assert given == {"installation": "other"}
    assert (made["metadata"]["namespace"], "namespaceSelector" in made["spec"]) == ("dispatcher", False)
    assert not {"honorLabels", "metricRelabelings"} & endpoint.keys()
    expressions = [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
    grouped = set(re.findall(r"by \(([\w]+, [\w]+)\b", "\n".join(expressions)))
    assert grouped == {"namespace, installation"}
    assert set(grouped.pop().split(", ")) <= OF_POD | given.keys()


def test_objects_of_monitoring_have_the_labels_by_which_operators_select() -> None:
    monitoring = {"podMonitor": True, "rules": True, "dashboards": True, "labels": {"release": "kube-prometheus-stack"}}
    found = [
        one for one in rendered("default", monitoring=monitoring) if "release" in one["metadata"].get("labels", {})
    ]
    assert {one["kind"] for one in found} == {"PodMonitor", "PrometheusRule", "ConfigMap"}


def test_label_of_monitoring_replaces_ours_and_never_stands_twice() -> None:
    """Grafana's sidecar may look for another value, and an operator select by a label that we set, too."""
    given = {"app.kubernetes.io/instance": "monitoring", "grafana_dashboard": "yes"}
    monitoring = {"podMonitor": True, "rules": True, "dashboards": True, "labels": given}
    text = helm("template", "x", CHART, "--values", "-", stdin=json.dumps({"monitoring": monitoring})).stdout
    blocks = re.findall(r"^  labels:\n((?:    \S+: .*\n)+)", text, re.MULTILINE)
    found = [re.findall(r"^ *(\S+): \"?([^\"\n]*)", block, re.MULTILINE) for block in blocks]
    assert [names for names in found if len(names) != len(dict(names))] == []
    assert len([names for names in found if given.items() <= dict(names).items()]) == 3


def test_cluster_may_choose_the_users() -> None:
    """OpenShift gives each namespace a range of its own, and refuses other users."""
    for pod in pod_templates(rendered("default", runAsUser=0)).values():
        assert pod["spec"]["securityContext"].keys() == {"runAsNonRoot", "seccompProfile"}


def test_prometheus_rule_is_the_shipped_file_of_rules() -> None:
    (found,) = [one for one in rendered("everything", only="monitoring") if one["kind"] == "PrometheusRule"]
    assert found["spec"] == RULES


def test_values_of_a_program_reach_its_pod() -> None:
    own: Json = {
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "priorityClassName": "system-cluster-critical",
        "podAnnotations": {"team": "platform"},
        "podLabels": {"sidecar.istio.io/inject": "false", "app.kubernetes.io/name": "mine"},
        "extraEnv": [{"name": "S3_ENDPOINT", "value": "https://s3.example"}],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    for program, command in {"run": "run", "janitor": "janitor", "migrate": "migrate", "scheduler": "extender"}.items():
        values: Json = {"imagePullSecrets": ["login"], program: own}
        template = pod_templates(rendered("everything", **values))[command]
        spec = template["spec"]
        for name in ("tolerations", "priorityClassName"):
            assert spec[name] == own[name]
        assert spec["nodeSelector"] == LINUX | own["nodeSelector"]
        assert spec["imagePullSecrets"] == [{"name": "login"}]
        assert template["metadata"]["annotations"]["team"] == "platform"
        labels = template["metadata"]["labels"]
        assert (labels["sidecar.istio.io/inject"], labels["app.kubernetes.io/name"]) == ("false", "dispatcher")
        assert spec["containers"][0]["resources"]["requests"] == own["resources"]["requests"]
        assert own["extraEnv"][0] in spec["containers"][0]["env"]


@pytest.mark.parametrize("program", ["run", "janitor", "scheduler", "cacheKeeper"])
@pytest.mark.parametrize("with_monitor", [False, True])
def test_annotation_of_a_pod_that_is_given_replaces_ours_and_never_stands_twice(
    program: str, with_monitor: bool
) -> None:
    given = {"prometheus.io/scrape": "false", "prometheus.io/port": "9090", "team": "platform"}
    monitoring = {"podMonitor": with_monitor}
    values: Json = {"monitoring": monitoring, program: {"podAnnotations": given | {DIGEST: "mine"}}}
    found = [one["metadata"].get("annotations", {}) for one in pod_templates(rendered("everything", **values)).values()]
    (its,) = [one for one in found if one.get("team") == "platform"]
    assert {name: value for name, value in its.items() if name != DIGEST} == given
    if program == "scheduler":
        assert re.fullmatch("[0-9a-f]{16}", its[DIGEST]), "another configuration has to make other Pods"
    base = ["--values", RENDERED / "values" / "everything.yaml", "--values", "-"]
    text = helm("template", "dispatcher", CHART, *base, stdin=json.dumps(values)).stdout
    for block in re.findall(r"annotations:\n((?: +\S+: .*\n)+)", text):
        names = re.findall(r"^ *(\S+): ", block, re.MULTILINE)
        assert len(names) == len(set(names)), block
