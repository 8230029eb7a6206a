"""The second, independent check: the rendered Job, read as a stranger would, against its template.

`manifest.py` builds by allow-list; this compares by equality. Everything that a row cannot open must stand in the Job
exactly as in the template, and what it can open must be inside the bounds. Neither calls the other, so that a mistake
in one is caught by the other (three Argo Workflows advisories of 2026 are what one wall leads to).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dispatcher import identity as ids
from dispatcher.jobs.env import CONTRACT, ENV_NAME, FIELDS, literal
from dispatcher.jobs.manifest import DISRUPTION_ENDS_THE_JOB, Site
from dispatcher.jobs.overrides import check_amount, check_image
from dispatcher.jobs.templates import Template
from dispatcher.model import Manifest, Order

JOB_FIELDS = frozenset({"backoffLimit", "podFailurePolicy", "activeDeadlineSeconds", "template"})
POD_FIELDS = frozenset({"restartPolicy", "activeDeadlineSeconds", "schedulerName", "containers"})
ROW_FIELDS = frozenset({"env", "image", "command", "args", "resources"})


def check_job(job: Manifest, order: Order, template: Template, site: Site) -> str:
    """The first thing in a rendered Job that its template does not allow; empty: none."""
    return next(violations(job, order, template, site), "")


def violations(job: Manifest, order: Order, template: Template, site: Site) -> Iterator[str]:
    meta, pod = job["metadata"], job["spec"]["template"]["spec"]
    if meta["namespace"] != site.namespace or meta["labels"][ids.LABEL_TASK_ID] != str(order.task.id):
        yield "the Job is not this task's"
    yield from spec_violations(job["spec"], template)
    if without(pod, POD_FIELDS) != without(template.pod_spec, POD_FIELDS):
        yield "the Pod's spec differs from its template"
    if len(pod["containers"]) != len(template.pod_spec["containers"]):
        yield "the Pod has another number of containers"
    for index, (ours, theirs) in enumerate(zip(pod["containers"], template.pod_spec["containers"], strict=False)):
        yield from container_violations(ours, theirs, template if index == template.container else None)
    yield from env_violations(pod["containers"][template.container]["env"], template, site)


def spec_violations(spec: Manifest, template: Template) -> Iterator[str]:
    pod = spec["template"]["spec"]
    if without(spec, JOB_FIELDS) != without(template.manifest["spec"], JOB_FIELDS):
        yield "the Job's spec differs from its template"
    if (spec["backoffLimit"], spec["podFailurePolicy"], pod["restartPolicy"]) != (0, DISRUPTION_ENDS_THE_JOB, "Never"):
        yield "the Job could make a second Pod"
    if not 0 < pod["activeDeadlineSeconds"] <= template.max_seconds:
        yield "the run limit is over the template's"


def container_violations(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], template: Template | None
) -> Iterator[str]:
    """`template` is None for a container that no row may touch."""
    if template is None:
        if ours != theirs:
            yield "another container differs from its template"
        return
    if without(ours, ROW_FIELDS) != without(theirs, ROW_FIELDS):
        yield "the container differs from its template"
    for field in ("image", "command", "args"):
        if ours.get(field) != theirs.get(field) and field not in template.opened:
            yield f"{field} differs from the template, which does not open it"
    if ours.get("image") != theirs.get("image"):
        yield from filter(None, [check_image(str(ours.get("image")), template)])
    yield from resource_violations(ours.get("resources") or {}, theirs.get("resources") or {}, template)


def resource_violations(ours: Mapping[str, Any], theirs: Mapping[str, Any], template: Template) -> Iterator[str]:
    both = ("requests", "limits")
    if without(ours, both) != without(theirs, both):
        yield "resources differ from the template"
    for side in both:
        mine, base = ours.get(side) or {}, theirs.get(side) or {}
        for resource in mine.keys() | base.keys():
            if mine.get(resource) == base.get(resource):
                continue
            if resource not in {"cpu", "memory"} or resource not in template.opened:
                yield f"{side}.{resource} differs from the template, which does not open it"
            else:
                yield from filter(None, [check_amount(resource, str(mine.get(resource)), template)])


def env_violations(env: list[dict[str, Any]], template: Template, site: Site) -> Iterator[str]:
    names = [variable["name"] for variable in env]
    if len(set(names)) != len(names):
        yield "an env name stands twice"
    if not set(names) >= CONTRACT:
        yield "the contract is incomplete"
    given = {name: literal(name, value) for name, value in site.passed.items()}
    given |= {variable["name"]: variable for variable in template.task_container.get("env") or []}
    for variable in env:
        if given.get(variable["name"]) != variable:
            yield from variable_violations(variable, variable["name"] in given, template.opened)


def variable_violations(variable: Mapping[str, Any], is_given: bool, opened: frozenset[str]) -> Iterator[str]:
    """Of a variable that neither the template nor PASS_ENV wrote: contract, or row."""
    name = variable["name"]
    if name not in CONTRACT and f"env.{name}" not in opened and (is_given or "env" not in opened):
        yield f"env.{name} is not opened"
    if not ENV_NAME.fullmatch(name):
        yield "an env name is illegal"
    if "value" not in variable and name not in FIELDS:
        yield f"env.{name} is not a plain value"
    if "$" in variable.get("value", "").replace("$$", ""):
        yield f"env.{name} would be expanded"


def without(mapping: Mapping[str, Any], fields: frozenset[str] | tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in fields and value != {}}
