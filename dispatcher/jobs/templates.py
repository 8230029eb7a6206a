"""Job templates: plain Job manifests. Their annotations say which fields rows may set (docs/author.md).

Templates are trusted, but checked when the file is read. A template must not break "one launch = one Job = one Pod",
and its bounds must mean what they say. A faulty template launches no Job; the fault names the field.
"""

import hashlib
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec
from msgspec import Struct

from dispatcher.jobs.template_checks import opening_of
from dispatcher.jobs.template_text import read_manifest
from dispatcher.model.errors import Fault, TemplateError
from dispatcher.model.jobs import Manifest


class Template(Struct, frozen=True):
    """A manifest that passed the checks.

    name: name of the template.
    manifest: the Job as it was written.
    container: index of the task's container.
    opened: names of the fields that rows may set.
    taken: names of the variables that the template sets.
    images: globs for a row's image.
    machines: globs for a row's machine.
    max_cpu: most cores that a row may ask for; None: rows may not set cpu.
    max_memory: most bytes that a row may ask for; None: rows may not set memory.
    max_seconds: highest run limit.
    report: "sql" or "exit-code".
    digest: digest of the manifest.
    """

    name: str
    manifest: Manifest
    container: int
    opened: frozenset[str]
    taken: frozenset[str]
    images: tuple[str, ...]
    machines: tuple[str, ...]
    max_cpu: Fraction | None
    max_memory: Fraction | None
    max_seconds: int
    report: str
    digest: str

    @property
    def pod_spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.manifest["spec"]["template"]["spec"]
        return spec

    @property
    def task_container(self) -> Mapping[str, Any]:
        container: Mapping[str, Any] = self.pod_spec["containers"][self.container]
        return container


def parse_template(name: str, text: str) -> Template:
    """The template of a file's text. TemplateError names field, value and rule of all faults."""
    try:
        return judge_template(name, read_manifest(text))
    except TemplateError as fault:
        raise TemplateError(*fault.faults, of=f"template {name}: ") from None


def judge_template(name: str, manifest: Manifest) -> Template:
    """The template of a manifest, after all checks."""
    bounds, faults = opening_of(manifest, name)
    if faults:
        raise TemplateError(*faults)
    try:
        written = msgspec.json.encode(manifest, order="deterministic")
    except (TypeError, ValueError, RecursionError) as fault:  # for example, a key that is no text
        raise TemplateError(Fault((), f"not a Job manifest ({type(fault).__name__}: {fault})")) from fault
    digest = hashlib.sha256(written).hexdigest()[:16]
    return Template(name=name, manifest=manifest, digest=digest, **msgspec.structs.asdict(bounds))
