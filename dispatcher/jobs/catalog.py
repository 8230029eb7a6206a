"""The templates: the files of TEMPLATES_DIR and the built-in template. Files are read again when they change.

An earlier version of a faulty file is not used, because it would be lost at a restart, and rows must be judged the same
before and after one. The rows of a faulty template are held, with the fault as their reason. A folder or file that
cannot be read is not a faulty one: its last content stays, and the next cycle tries again.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from dispatcher.jobs.manifest import PlacedBy
from dispatcher.jobs.offered import offered_templates, why_unusable
from dispatcher.jobs.row_check import judge_kind
from dispatcher.jobs.template_text import MOST_BYTES, text_of
from dispatcher.jobs.templates import Template, judge_template, parse_template
from dispatcher.model.errors import TemplateError
from dispatcher.model.launches import Offer
from dispatcher.model.resources import parse_quantity
from dispatcher.model.tasks import CONTROLS, UNPRINTABLE, Kind, OfferedTemplate
from dispatcher.model.verdicts import UNREAD_FILE, UNREADABLE, Hold, HoldReason, own_fault
from dispatcher.runtime.clock import elapsed
from dispatcher.settings.definition import JobSettings

log = structlog.get_logger(component="jobs.catalog")
MOST_KINDS: Final = 100_000
"""Kinds whose offers are remembered, at most."""
SUFFIX: Final = ".yaml"
ALIKE: Final = (SUFFIX, ".yml")
"""How a file ends that somebody takes for a template, in any case."""


class Catalog:
    """Templates by name, and the offer for each kind of row. A template that is a string is the fault of its file.

    looked_at: monotonic seconds of the last look that could read the files.
    """

    def __init__(self, settings: JobSettings, passed: frozenset[str], placed_by: PlacedBy) -> None:
        self.templates: Mapping[str, Template | str] = {}
        self.fault = ""
        self.looked_at = float("-inf")
        self._settings = settings
        self._passed = passed
        self._placed_by = placed_by
        self._stamp: object = None
        self._offers: dict[bytes, Offer | Hold] = {}

    def refresh(self) -> bool:
        """Reads the templates if a file changed. Returns True if it did. Every cycle calls this: one stat per file."""
        try:
            files = find_files(self._settings.templates_dir)
        except OSError as fault:
            self.fault = f"TEMPLATES_DIR: {fault}"
            return False
        self.fault, self.looked_at = "", elapsed()
        if files == self._stamp:
            return False
        return self._read(files)

    def _read(self, files: Mapping[Path, tuple[int, int]]) -> bool:
        """Reads the files. A file that cannot be read leaves no stamp, so that it is read again."""
        found, stamp = built_in(self._settings), dict(files)
        for path in files:
            name = name_of(path)
            try:
                found[name] = read_file(path)
            except OSError as fault:
                del stamp[path]
                found[name] = self._before(name, fault)
        self._stamp = stamp
        most = int(parse_quantity(self._settings.max_job_bytes))
        found = {name: one if isinstance(one, str) else bounded(one, most) for name, one in found.items()}
        if found == self.templates:
            return False
        self.templates, self._offers = found, {}
        faults = [fault for fault in found.values() if isinstance(fault, str)]
        log.info("templates read", names=sorted(found), faults=faults)
        return True

    def _before(self, name: str, fault: OSError) -> Template | str:
        """What replaces a template whose file cannot be read now."""
        known = self.templates.get(name)
        return known if isinstance(known, Template) else f"{UNREAD_FILE}: {fault.strerror}"

    def offer(self, kind: Kind) -> Offer | Hold:
        """The offer for rows of this kind, or their hold. A kind is judged once, and again if a template changes."""
        if len(self._offers) > MOST_KINDS:
            self._offers = {}
        if self.fault and kind.template not in self.templates:
            return Hold(HoldReason.UNKNOWN_TEMPLATE, f"{UNREADABLE}: {self.fault}")
        if (known := self._offers.get(kind.digest)) is not None:
            return known
        try:
            judged = judge_kind(kind, self.templates, self._passed, self._placed_by)
        except Exception as bug:  # noqa: BLE001  # one kind must not end a cycle, which launches the rows of all teams
            judged = own_fault(bug)
            log.error("a kind of rows cannot be judged", fault=judged.detail)  # noqa: TRY400  # a traceback may quote a row
        self._offers[kind.digest] = judged
        return judged

    def known_offer(self, digest: bytes) -> Offer | Hold | None:
        return self._offers.get(digest)

    def offered(self) -> list[OfferedTemplate]:
        """What the templates let rows set, for the table by which INSERT judges rows."""
        return offered_templates(self.templates, self._passed)


def bounded(template: Template, most: int) -> Template:
    """The template, with the installation's bound if it has no own one."""
    return template if template.max_bytes else msgspec.structs.replace(template, max_bytes=most)


def find_files(folder: str | None) -> dict[Path, tuple[int, int]]:
    """Time and inode of each file, also of misnamed ones. An update of a mounted ConfigMap changes the inode."""
    if folder is None:
        return {}
    with os.scandir(folder) as entries:  # in every cycle: pathlib takes several times as long
        files = [(file.name, file.stat()) for file in entries if file.name.lower().endswith(ALIKE) and file.is_file()]
    found = sorted(files, key=lambda one: (one[0].endswith(SUFFIX), one[0]))  # NAME.yaml wins over NAME.yml
    return {Path(folder, name): (stat.st_mtime_ns, stat.st_ino) for name, stat in found}


def misnamed(path: Path) -> str:
    """Why the file's name is not that of a template; empty: it is."""
    words = f"the file's name is {path.name!r:.80}: the dispatcher reads NAME{SUFFIX} alone"
    return "" if path.suffix == SUFFIX else words


def name_of(path: Path) -> str:
    """Name of the file's template. A name that is no UTF-8 is faulty, and stands in messages and in the database."""
    return CONTROLS.sub(UNPRINTABLE, path.stem)


def read_bounded(path: Path) -> str:
    """The text of a file, of at most as many bytes as a template may have. Raises TemplateError if it is no text."""
    with path.open("rb") as file:
        return text_of(file.read(MOST_BYTES + 1))


def read_file(path: Path) -> Template | str:
    """The template, or the fault of the file. Raises OSError if it cannot be read."""
    name = name_of(path)
    try:
        text, fault = read_bounded(path), misnamed(path)
    except TemplateError as unread:
        text, fault = "", str(unread)
    if fault:
        return f"template {name}: {fault}"
    try:
        template = parse_template(name, text)
        return why_unusable(template) or template
    except TemplateError as faulty:
        return str(faulty)
    except Exception as bug:  # noqa: BLE001  # one file must not end a cycle, which launches the rows of all teams
        return f"template {name}: {own_fault(bug).detail}"


def built_in(settings: JobSettings) -> dict[str, Template | str]:
    """The template `default` of an installation that sets only an image."""
    if settings.image is None:
        return {}
    container: dict[str, Any] = {
        "name": "task",
        "image": settings.image,
        "imagePullPolicy": "Always",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {
            "requests": {"cpu": settings.cpu_request, "memory": settings.memory_request},
            "limits": {"cpu": settings.cpu_limit, "memory": settings.memory_limit},
        },
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if settings.task_secret:
        container["envFrom"] = [{"secretRef": {"name": settings.task_secret}}]
    # An autoscaler must not end a running launch to remove its node. The run limit bounds the time that it waits.
    stay = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, "runAsNonRoot": settings.run_as_non_root},
        "containers": [container],
    }
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"template": {"metadata": {"annotations": stay}, "spec": pod}},
    }
    return {"default": judge_template("default", manifest)}
