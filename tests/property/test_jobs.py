"""Any row with any template: the row is refused, or its Job stays within the template and carries the row's values
unchanged.
"""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.jobs.env import CONTRACT, is_trusted
from dispatcher.jobs.manifest import build_job
from dispatcher.jobs.policy import check_job
from dispatcher.jobs.row_check import judge_kind
from dispatcher.jobs.templates import Template
from dispatcher.model.jobs import Manifest
from dispatcher.model.launches import DOMAIN, Launch, LaunchSpec, Offer
from dispatcher.model.tasks import Kind
from dispatcher.model.verdicts import Hold, HoldReason
from tests.property.differences import allowed, differences
from tests.property.kubelet import seen_env, seen_words
from tests.property.profiles import FACT
from tests.property.replica import PASSED
from tests.property.replica import SITE as OPEN_SITE
from tests.rig.builders import NOT_PLACED, a_kind, a_request, a_task, a_template, an_order

NAMES = ["A", "MODE", "KEY", "S3_URL", "TASK_ID", "LD_PRELOAD", "DISPATCHER_X", "NODE_NAME", "a b", "1A", "",
         "PYTHONPATH", "http_proxy"]  # fmt: skip
OPENINGS = ["env", "env.MODE", "env.KEY", "env.S3_URL", "env.PYTHONPATH", "image", "command", "args", "cpu", "memory"]
IMAGES = ["team-a/app:1", "team-a/app:2", "team-a/x/../../b:1", "team-a//b", "team-b/app", "", "TEAM-A/app"]
FINE_IMAGES = ["team-a/app:1", "team-a/app:2"]
FINE_CPU = ["1", "1000m", "4"]
FINE_MEMORY = ["1", "1000m", "4", "4001m", "1e9", "1Gi", "8Gi"]
AMOUNTS = ["1", "1000m", "4", "4001m", "0", "-1", "1e9", "x", "1Gi", "8Gi", "9Gi", "1" * 200]
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
DOLLARS = st.text(st.sampled_from("$()AMODEKY \\"), max_size=12)
texts = TEXT | DOLLARS

own_env: st.SearchStrategy[list[dict[str, Any]]] = st.lists(st.sampled_from([
    {"name": "MODE", "value": "fast-$(KEY)"}, {"name": "PLAIN", "value": "$$5"},
    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "team-a", "key": "token"}}},
]), unique_by=lambda one: str(one.get("name")))  # fmt: skip
extras = st.fixed_dictionaries({}, optional={
    "command": st.just(["run", "$(KEY)"]), "args": st.just(["x"]),
    "envFrom": st.just([{"secretRef": {"name": "team-a"}}]), "securityContext": st.just({"privileged": False}),
    "volumeMounts": st.just([{"name": "scratch", "mountPath": "/s"}]),
})  # fmt: skip
pods = st.fixed_dictionaries({}, optional={
    "nodeSelector": st.just({"disk": "ssd"}), "schedulerName": st.just("theirs"),
    "serviceAccountName": st.just("team-a"), "volumes": st.just([{"name": "scratch", "emptyDir": {}}]),
    "initContainers": st.just([{"name": "init", "image": "init:1", "env": [{"name": "A", "value": "init"}]}]),
})  # fmt: skip


@st.composite
def templates(draw: st.DrawFn) -> Template:
    opens = draw(st.lists(st.sampled_from(OPENINGS), unique=True))
    bounds = {"images": "team-a/*", "max-cpu": "4", "max-memory": "8Gi", "max-seconds": "7200"}
    return a_template(opens=",".join(opens), bounds=bounds, pod=draw(pods), spec={"parallelism": 1},
                      container={"env": draw(own_env)} | draw(extras))  # fmt: skip


specs = st.fixed_dictionaries({}, optional={
    "image": st.sampled_from(IMAGES), "command": st.lists(texts, max_size=3), "args": st.lists(texts, max_size=3),
    "cpu": st.sampled_from(AMOUNTS), "memory": st.sampled_from(AMOUNTS),
})  # fmt: skip
unknown_fields = st.dictionaries(
    st.sampled_from(["private_machine", "hostNetwork", "volumes"]), st.just("x"), max_size=1
)
envs = st.dictionaries(st.sampled_from(NAMES), texts, max_size=4)
limits = st.none() | st.sampled_from([1, 3600, 7200, 7201, 604_800])
asked = st.builds(dict.__or__, specs, unknown_fields)
one_variable = st.dictionaries(st.sampled_from(["A", "MODE", "KEY", "S3_URL"]), texts, min_size=1, max_size=1)
small_rows: st.SearchStrategy[tuple[Any, ...]] = st.tuples(one_variable, st.just({}), st.none(), st.just(1))
small_rows |= st.tuples(st.just({}), specs, st.none(), st.just(1))
rows = st.tuples(envs, asked, limits, st.integers(1, 30)) | small_rows


def one_request(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row with only the first of its requests that would change its Job."""
    env, spec, *rest = row
    accepted = [(name, value) for name, value in env.items() if name not in CONTRACT][:1]
    return dict(accepted), {} if accepted else dict([pair for pair in spec.items() if pair[0] in OPENINGS][:1]), *rest


def offer_and_job(template: Template, row: tuple[Any, ...]) -> tuple[Offer | Hold, LaunchSpec, Manifest]:
    """The offer for the row's kind, and the Job that would be built from the row even if its kind is held."""
    env, spec, limit, number = row
    judged = {name: value for name, value in spec.items() if name not in {"command", "args"}}
    kind = Kind(b"k", template.name, limit, judged, frozenset(spec), frozenset(env))
    task = a_task(timeout_seconds=limit, template=template.name)
    order = an_order(template, task=task, launch=Launch(number), env=env, spec=spec)
    verdict = judge_kind(kind, {template.name: template}, frozenset(PASSED), NOT_PLACED)
    return verdict, order, build_job(order, template, OPEN_SITE)


def job_without_request(template: Template, order: LaunchSpec) -> Manifest:
    """The Job of the same launch for a row without requests."""
    asked = msgspec.structs.replace(order, request=a_request())
    return build_job(asked, template, OPEN_SITE)


@pytest.mark.fault(56)
@FACT
@given(templates(), rows)
def test_admitted_row_changes_only_what_its_template_opens(template: Template, row: tuple[Any, ...]) -> None:
    """I16."""
    offer, order, job = offer_and_job(template, row)
    if isinstance(offer, Hold):
        assert offer.reason is HoldReason.POLICY_DENIED
        return
    assert check_job(job, order, template, OPEN_SITE) == ""
    asked = order.request.spec
    assert asked.get("image", FINE_IMAGES[0]) in FINE_IMAGES
    assert asked.get("cpu", "1") in FINE_CPU
    assert asked.get("memory", "1") in FINE_MEMORY
    taken = template.taken | PASSED.keys() | CONTRACT
    for path in differences(job, job_without_request(template, order)):
        name = path.removeprefix("/spec/template/spec/containers/task/env/")
        is_new_variable = name != path and "env" in template.opened and name not in taken and not is_trusted(name)
        is_open = any(path == one or path.startswith(f"{one}/") for one in allowed(template))
        assert is_open or is_new_variable, path


parts = st.lists(st.sampled_from(["team-a", "team-b", "x", "..", ""]), min_size=1, max_size=4)


@FACT
@given(parts)
def test_image_stays_inside_the_folder_of_its_template(parts: list[str]) -> None:
    """`*` also matches `/`, so `..` in a path needs a rule of its own."""
    template, image = a_template(opens="image", bounds={"images": "team-a/*"}), "/".join(parts)
    kind = a_kind(spec={"image": image}, template="default")
    offer = judge_kind(kind, {"default": template}, frozenset(), NOT_PLACED)
    is_inside = len(parts) > 1 and parts[0] == "team-a" and ".." not in parts and "" not in parts[:-1]
    assert isinstance(offer, Offer) == is_inside


@FACT
@given(templates(), rows.map(one_request))
def test_second_check_refuses_rows_that_the_first_refuses(template: Template, row: tuple[Any, ...]) -> None:
    """Exception: a row that changes nothing in its Job."""
    offer, order, job = offer_and_job(template, row)
    if isinstance(offer, Hold):
        same = not differences(job, job_without_request(template, order)) and (row[2] or 0) <= template.max_seconds
        assert same or check_job(job, order, template, OPEN_SITE)


@FACT
@given(templates(), rows)
def test_row_values_reach_the_container_unchanged(template: Template, row: tuple[Any, ...]) -> None:
    """I17: after kubelet's expansion. The dispatcher passes on only the variables that PASS_ENV names."""
    offer, order, job = offer_and_job(template, row)
    if isinstance(offer, Hold):
        return
    container = job["spec"]["template"]["spec"]["containers"][0]
    seen = seen_env(container)
    assert set(seen) == CONTRACT | template.taken | PASSED.keys() | order.request.env.keys()
    for name, value in order.request.env.items():
        assert seen[name] == value
    for name in PASSED.keys() - template.taken - order.request.env.keys():
        assert seen[name] == PASSED[name]
    for field in ("command", "args"):
        if field in order.request.spec:
            assert seen_words(container, field) == order.request.spec[field]


@FACT
@given(templates(), rows)
def test_row_adds_bounded_size_to_its_job(template: Template, row: tuple[Any, ...]) -> None:
    """I18: each character is at most doubled before it is written as JSON. The rest has a fixed bound."""
    _, order, job = offer_and_job(template, row)
    brought = len(json.dumps([order.request.env, order.request.spec]))
    without = len(json.dumps(job_without_request(template, order)))
    assert len(json.dumps(job)) <= without + 2 * brought + 100 * len(order.request.env)


huge = st.sampled_from(["x" * 100_000, "1" * 100_000, "team-a/" + "x" * 100_000])
hostile = st.fixed_dictionaries({}, optional={"image": huge, "cpu": huge, "memory": huge, "y" * 1000: huge})


@FACT
@given(hostile, st.frozensets(st.sampled_from(["A" * 255, "\n" * 5000, "TASK_" + "X" * 250])))
def test_hold_detail_is_short_for_any_row(spec: dict[str, str], env: frozenset[str]) -> None:
    """I18: so log lines and pages stay readable."""
    template = a_template(opens="image,cpu,memory", bounds={"images": "team-a/*"})
    kind = a_kind(spec=spec, spec_names=frozenset(spec), env_names=env, template="default")
    hold = judge_kind(kind, {"default": template}, frozenset(), NOT_PLACED)
    assert not isinstance(hold, Hold) or len(hold.detail) < 2000
    assert DOMAIN not in str(hold)
