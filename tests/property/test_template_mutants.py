"""A template that somebody, helm or envsubst left odd is refused when it is read, or its Jobs can be built and judged.

By default 2,000 mutants, the same each time; with `make fuzz` 100,000 others. MUTANT_SEED repeats a run that failed.
"""

import copy
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from dispatcher.commands.adopt import adopt
from dispatcher.commands.render import built
from dispatcher.jobs.catalog import bounded
from dispatcher.jobs.env import beside_variables, named_secrets, other_secrets
from dispatcher.jobs.manifest import PlacedBy
from dispatcher.jobs.offered import offered_templates, why_unusable
from dispatcher.jobs.row_check import judge_kind
from dispatcher.jobs.template_text import write_document
from dispatcher.jobs.templates import Template, judge_template, parse_template
from dispatcher.kube.pods import needs_of_manifest
from dispatcher.model.caches import Pool
from dispatcher.model.errors import TemplateError
from dispatcher.model.launches import Offer
from dispatcher.model.tasks import Kind
from dispatcher.settings.loading import load
from tests.property.profiles import amount, seed_of
from tests.rig.whole_job import parent_of, paths, whole_job

MUTANTS = amount(gate=500, whole=2_000, nightly=100_000)
SEED = seed_of("MUTANT_SEED")
OPEN = {
    "row-may-set": "env,image,command,args,cpu,memory,private_machine,special_machine", "max-cpu": "8",
    "max-memory": "16Gi", "images": "*", "machines": "*", "max-seconds": "600",
}  # fmt: skip
ODD: tuple[Any, ...] = (
    None, "", " ", "x", "64MB", "-1", "1e400", 0, -1, 1.5, 2**70, True, [], [None], [[]], [{}], {}, {"": None},
    {"name": "task"}, {"x": {"y": []}}, "\0", "\ud800", "a" * 300,
)  # fmt: skip
KINDS = [
    Kind(b"", "t", None, {}, frozenset(), frozenset()),
    Kind(b"", "t", 5, {"cpu": "1", "memory": "1Gi"}, frozenset({"cpu", "memory", "args"}), frozenset({"A", "LD_X"})),
    Kind(b"", "t", None, {"image": "i", "private_machine": "p"}, frozenset({"image", "private_machine"}), frozenset()),
]
SETTINGS = load({"DISPATCHER_IMAGE": "i", "DISPATCHER_PASS_ENV": "P"}, str).settings
PLACED_BY = PlacedBy(
    needs_of_manifest, lambda spec: Pool("pool", "p", is_private=True) if "private_machine" in spec else None
)


def open_job() -> dict[str, Any]:
    """A Job with each field that there is, as a template that opens all to rows."""
    manifest = whole_job()
    manifest["metadata"]["annotations"] = {f"dispatcher.internal/{name}": value for name, value in OPEN.items()}
    manifest["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    return manifest


def mutant(rng: random.Random) -> dict[str, Any]:
    """The Job with one to three parts that are left out, odd, or a part from elsewhere."""
    manifest = open_job()
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not (places := paths(manifest)):
            break
        path = rng.choice(places)
        parent = parent_of(manifest, path)
        match rng.choice(("odd", "odd", "odd", "left out", "moved", "renamed")):
            case "left out":
                del parent[path[-1]]
            case "moved":
                other = rng.choice(places)
                parent[path[-1]] = copy.deepcopy(parent_of(manifest, other)[other[-1]])
            case "renamed" if isinstance(parent, dict):
                parent[f"{path[-1]}x"] = parent.pop(path[-1])
            case _:
                parent[path[-1]] = copy.deepcopy(rng.choice(ODD))
    return manifest


def judged(template: Template) -> str:
    """What becomes of a template that passed its checks, in all hands. Raises nothing."""
    if why_unusable(template):
        return "unusable"
    template = bounded(template, 1 << 16)
    offers = [judge_kind(kind, {"t": template}, frozenset({"P"}), PLACED_BY) for kind in KINDS]
    msgspec.json.encode(offered_templates({"t": template}, ["P"]))
    list(template.doubts({"P"}, "own")), built(template, {}, SETTINGS), built(template, {"args": ["x"]}, SETTINGS)
    named_secrets(template.pod_spec), list(beside_variables(template.pod_spec))
    list(other_secrets(template.manifest["spec"]["template"]))
    assert needs_of_manifest(template.pod_spec) is not None, "its rows would be launched without a look at room"
    return "offers" if any(isinstance(one, Offer) for one in offers) else "holds"


def end_of(manifest: dict[str, Any], *, by_text: bool = False) -> str:
    """What becomes of a manifest. Raises nothing, whatever it is."""
    try:
        adopt(manifest)
        template = parse_template("t", write_document(manifest)) if by_text else judge_template("t", manifest)
    except TemplateError as fault:
        assert fault.faults  # noqa: PT017  # a refusal is one of two right ends
        return "refused"
    return judged(template)


def test_no_blank_stops_anything_but_the_rows_of_its_template() -> None:
    """Each field in turn is null, as envsubst and helm leave it."""
    ends = Counter[str]()
    for path in paths(open_job()):
        manifest = open_job()
        parent_of(manifest, path)[path[-1]] = None
        with naming(f"{path} is null"):
            ends[end_of(manifest)] += 1
    assert min(ends["refused"], ends["offers"]) > ends.total() / 20


def test_no_template_stops_anything_but_its_own_rows() -> None:
    rng, ends = random.Random(SEED), Counter[str]()
    for number in range(MUTANTS):
        manifest = mutant(rng)
        with naming(f"MUTANT_SEED={SEED}, mutant {number}: {manifest}"):
            ends[end_of(manifest, by_text=number % 20 == 0)] += 1
    print(f"{MUTANTS} mutants, MUTANT_SEED={SEED}: {dict(ends)}")  # noqa: T201  # the figures are the purpose
    assert min(ends["refused"], ends["offers"]) > MUTANTS / 20


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Adds to any fault what it was about."""
    try:
        yield
    except Exception as bug:  # it is named, and raised again
        bug.add_note(what)
        raise
