"""A placement in a Job: fields that it sets, fields of the template that stay, and refusals of the second check."""

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dispatcher.jobs.manifest import JobSite, build_job
from dispatcher.jobs.policy import check_job
from dispatcher.jobs.row_check import judge_kind
from dispatcher.jobs.templates import Template
from dispatcher.model.caches import Placement, Pool
from dispatcher.model.jobs import Manifest
from dispatcher.model.launches import HISTORY_NODES, LaunchSpec, Offer
from dispatcher.model.verdicts import Hold
from dispatcher.settings.definition import PlacementSettings
from tests.rig.builders import NOT_PLACED, SITE, a_kind, a_template, an_order

ROOT = "/var/cache/tasks"
SETTINGS = PlacementSettings(cache_root=ROOT, private_machine_label="mine", special_machine_label="gpu")
PLACED: JobSite = msgspec.structs.replace(SITE, placement=SETTINGS)
SELECTING: JobSite = msgspec.structs.replace(SITE, placement=PlacementSettings(node_selector="pool=batch"))
CACHES = f"{ROOT}/{SITE.installation}"
CACHE = f"{CACHES}/{'0a' * 20}"
WARM = Placement(preferred=("n1", "n2"), notes={HISTORY_NODES: '["n1","n2"]'}, cache_path=CACHE)
PRIVATE = Placement(Pool("mine", "m1", is_private=True))
SPECIAL = Placement(Pool("gpu", "g1"))
MACHINES = {"machines": "m1,g*"}
OPEN = a_template(opens="private_machine,special_machine", bounds=MACHINES)
CONTAINER = {"name": "task", "image": "app:1"}
MOUNT = {"name": "dispatcher-cache", "mountPath": "/cache"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
DISK = {"key": "disk", "operator": "In", "values": ["ssd"]}
OWN_PLACE = {
    "affinity": {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [
                {"matchExpressions": [DISK]},
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]},
            ]},
            PREFERRED: [{"weight": 7, "preference": {"matchExpressions": [DISK]}}],
        },
        "podAntiAffinity": {PREFERRED: []},
    },
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "volumes": [{"name": "scratch", "emptyDir": {}}],
    "initContainers": [{"name": "init", "image": "init:1"}],
}  # fmt: skip


def pod_of(placement: Placement, template: Template = OPEN, site: JobSite = PLACED, **asked: Any) -> Manifest:
    """The Pod's spec in the Job, after the second check has passed it."""
    order = an_order(template, placement=placement, **asked)
    job = build_job(order, template, site)
    assert check_job(job, order, template, site) == ""
    pod: Manifest = job["spec"]["template"]["spec"]
    return pod


def required_terms(pod: Manifest) -> list[Any]:
    return [term.get("matchExpressions") for term in pod["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]]


def test_private_machine_is_required_and_its_taint_tolerated() -> None:
    pod = pod_of(PRIVATE, spec={"private_machine": "m1"})
    assert required_terms(pod) == [[{"key": "mine", "operator": "In", "values": ["m1"]}]]
    assert pod["tolerations"] == [{"key": "mine", "operator": "Equal", "value": "m1", "effect": "NoSchedule"}]


def test_special_machine_is_required_and_no_taint_tolerated() -> None:
    pod = pod_of(SPECIAL, spec={"special_machine": "g1"})
    assert required_terms(pod) == [[{"key": "gpu", "operator": "In", "values": ["g1"]}]]
    assert "tolerations" not in pod


def test_node_selector_is_required_of_rows_that_name_no_machine() -> None:
    pod = pod_of(Placement(Pool("pool", "batch")), site=SELECTING)
    assert required_terms(pod) == [[{"key": "pool", "operator": "In", "values": ["batch"]}]]


def test_required_label_is_added_to_every_node_selector_term() -> None:
    template = a_template(opens="private_machine", bounds=MACHINES, pod={"containers": [CONTAINER], **OWN_PLACE})
    pod = pod_of(PRIVATE, template, spec={"private_machine": "m1"})
    mine = {"key": "mine", "operator": "In", "values": ["m1"]}
    assert required_terms(pod) == [[DISK, mine], [mine]]
    assert pod["tolerations"][0] == {"key": "spot", "operator": "Exists"}
    assert pod["affinity"]["podAntiAffinity"] == {PREFERRED: []}


def test_every_other_node_is_preferred_to_one_that_is_kept_for_another_row() -> None:
    affinity = pod_of(Placement(preferred=("n1",), avoided=("n2", "n3")))["affinity"]["nodeAffinity"]
    fields = [one["preference"]["matchFields"] for one in affinity[PREFERRED]]
    assert [(one[0]["operator"], one[0]["values"]) for one in fields] == [
        ("In", ["n1"]),
        ("NotIn", ["n2"]),
        ("NotIn", ["n3"]),
    ]
    assert [one["weight"] for one in affinity[PREFERRED]] == [100, 100, 100]


def test_history_nodes_are_preferred_after_preferences_of_the_template() -> None:
    template = a_template(pod={"containers": [CONTAINER], **OWN_PLACE})
    preferred = pod_of(WARM, template)["affinity"]["nodeAffinity"][PREFERRED]
    assert [one["weight"] for one in preferred] == [7, 100, 60]
    assert [one["preference"]["matchFields"][0]["values"] for one in preferred[1:]] == [["n1"], ["n2"]]


def test_cache_is_mounted_in_every_container_and_named_in_the_env() -> None:
    template = a_template(pod={"containers": [CONTAINER, {"name": "side", "image": "s:1"}], **OWN_PLACE})
    pod = pod_of(WARM, template)
    assert pod["volumes"][0] == {"name": "scratch", "emptyDir": {}}
    assert pod["volumes"][1]["hostPath"] == {"path": CACHE, "type": "DirectoryOrCreate"}
    assert [one["volumeMounts"] for one in (*pod["initContainers"], *pod["containers"])] == [[MOUNT]] * 3
    assert cache_dir(pod) == "/cache"


def cache_dir(pod: Manifest) -> str:
    return str({one["name"]: one.get("value") for one in pod["containers"][0]["env"]}["TASK_CACHE_DIR"])


@pytest.mark.parametrize(
    "own",
    [
        {"containers": [{**CONTAINER, "volumeMounts": [{"name": "mine", "mountPath": "/cache/"}]}],
         "volumes": [{"name": "mine", "emptyDir": {}}]},
        {"containers": [CONTAINER], "volumes": [{"name": "dispatcher-cache", "emptyDir": {}}]},
        {"containers": [{**CONTAINER, "volumeMounts": [MOUNT]}], "volumes": [{"name": "dispatcher-cache"}]},
    ],
)  # fmt: skip
def test_template_with_a_conflicting_mount_or_volume_gets_no_cache(own: dict[str, Any]) -> None:
    template = a_template(pod=own)
    pod = pod_of(WARM, template)
    assert pod["volumes"] == own["volumes"]
    assert cache_dir(pod) == ""


def test_placement_does_not_change_the_template() -> None:
    template = a_template(pod={"containers": [CONTAINER], **OWN_PLACE})
    before = copy.deepcopy(template.manifest)
    pod_of(WARM, template)
    assert template.manifest == before


def test_a_row_may_name_a_machine_only_where_its_template_opens_it() -> None:
    kind = a_kind(spec={"private_machine": "m1"}, spec_names=frozenset({"private_machine"}))
    held = judge_kind(kind, {"default": a_template()}, frozenset(), NOT_PLACED)
    assert isinstance(held, Hold)
    assert "does not open spec.private_machine" in held.detail
    assert isinstance(judge_kind(kind, {"default": OPEN}, frozenset(), NOT_PLACED), Offer)


@pytest.mark.parametrize("field", ["private_machine", "special_machine"])
@pytest.mark.parametrize(
    ("machines", "name", "allowed"),
    [
        ("team-a-*", "team-a-1", True),
        ("team-a-*", "team-b-1", False),
        ("team-a-*", "xteam-a-1", False),
        ("team-a-1,team-a-2", "team-a-2", True),
        ("team-a-?", "team-a-10", False),
        ("", "team-a-1", False),
        (None, "team-a-1", False),
    ],
)
def test_a_row_may_name_only_the_machines_of_its_template(
    field: str, machines: str | None, name: str, *, allowed: bool
) -> None:
    template = a_template(opens=field, bounds={} if machines is None else {"machines": machines})
    kind = a_kind(spec={field: name}, spec_names=frozenset({field}))
    verdict = judge_kind(kind, {"default": template}, frozenset(), NOT_PLACED)
    assert isinstance(verdict, Offer if allowed else Hold)
    placement = Placement(Pool("mine" if field == "private_machine" else "gpu", name, field == "private_machine"))
    order = an_order(template, placement=placement, spec={field: name})
    violation = check_job(build_job(order, template, PLACED), order, template, PLACED)
    assert ("the nodes that it demands" in violation) is not allowed, "the second check agrees with the first"


@pytest.mark.parametrize("node", ["No Such Node!", "", "a..b", "-a", "A", "a" * 254, "n1\n"])
def test_invalid_node_name_in_a_preference_is_found(node: str) -> None:
    assert "it prefers something else" in violation_after(lambda pod: None, placement=Placement(preferred=(node,)))


# Refusals of the second check


def violation_after(change: Callable[[Manifest], None], template: Template = OPEN, **asked: Any) -> str:
    order: LaunchSpec = an_order(template, placement=asked.pop("placement", WARM), **asked)
    job = copy.deepcopy(build_job(order, template, PLACED))
    change(job["spec"]["template"]["spec"])
    return check_job(job, order, template, PLACED)


def require(pod: Manifest) -> None:
    pod["affinity"]["nodeAffinity"][REQUIRED] = {"nodeSelectorTerms": [{"matchExpressions": [DISK]}]}


VIOLATIONS: list[tuple[Callable[[Manifest], object], str]] = [
    (lambda pod: pod.update(tolerations=[{"operator": "Exists"}]), "it tolerates more"),
    (require, "the nodes that it demands"),
    (lambda pod: pod["affinity"].update(podAffinity={}), "the affinity to other Pods"),
    (lambda pod: pod["affinity"]["nodeAffinity"][PREFERRED].append(
        {"weight": 1, "preference": {"matchExpressions": [DISK]}}), "it prefers something else"),
    (lambda pod: pod["volumes"].append({"name": "x", "hostPath": {"path": "/"}}), "it has a volume"),
    (lambda pod: pod["volumes"][0]["hostPath"].update(path=f"{ROOT}/../../etc"), "it has a volume"),
    (lambda pod: pod["volumes"][0]["hostPath"].update(path=f"{CACHES}/{'0A' * 20}"), "it has a volume"),
    (lambda pod: pod["volumes"][0]["hostPath"].update(path=f"{ROOT}/other/{'0a' * 20}"), "it has a volume"),
    (lambda pod: pod["volumes"][0]["hostPath"].update(path=f"{ROOT}/{'0a' * 20}"), "it has a volume"),
    (lambda pod: pod["volumes"][0]["hostPath"].update(path=f"/etc/{'0a' * 20}"), "it has a volume"),
    (lambda pod: pod["volumes"][0].update(name="other"), "it has a volume"),
    (lambda pod: pod["containers"][0]["volumeMounts"].append({"name": "dispatcher-cache", "mountPath": "/etc"}),
     "the container differs"),
    (lambda pod: pod["containers"][0].pop("volumeMounts"), "env.TASK_CACHE_DIR is not what the contract says"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), VIOLATIONS)
def test_change_that_the_template_does_not_allow_is_named(change: Callable[[Manifest], None], words: str) -> None:
    assert words in violation_after(change)


def test_machine_that_the_template_does_not_open_is_found() -> None:
    assert "the nodes that it demands" in violation_after(
        lambda pod: None, a_template(), placement=PRIVATE, spec={"private_machine": "m1"}
    )


OWN = a_template(pod={"containers": [CONTAINER], **OWN_PLACE})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda pod: pod["tolerations"].clear(), "it tolerates more"),
        (lambda pod: pod["volumes"].pop(0), "it has a volume"),
        (lambda pod: pod["affinity"]["nodeAffinity"][PREFERRED].pop(0), "it prefers something else"),
        (lambda pod: pod["affinity"]["nodeAffinity"].pop(REQUIRED), "the nodes that it demands"),
    ],
)
def test_removed_part_of_the_template_is_found(change: Callable[[Manifest], None], words: str) -> None:
    assert words in violation_after(change, OWN)


def test_note_that_is_no_advice_is_found() -> None:
    other = Placement(notes={"dispatcher.internal/shape": "x"})
    assert violation_after(lambda pod: None, placement=other) == "the Pod is told what is no advice"


def test_machine_other_than_the_requested_one_is_found() -> None:
    other = Placement(Pool("mine", "m2", is_private=True))
    assert "the nodes that it demands" in violation_after(
        lambda pod: None, placement=other, spec={"private_machine": "m1"}
    )
