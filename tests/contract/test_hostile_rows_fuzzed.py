"""Hostile rows, many at once, from INSERT to Job.

Submitters insert them, and the dispatcher's own code reads and renders them. The API server judges a part of the Jobs
in dry runs, asked with the dispatcher's own account.

By default 10,000 rows, the same each time; with `make fuzz` 100,000 others. HOSTILE_SEED repeats a run that failed.
"""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
import yaml

from dispatcher.model.jobs import Manifest
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Hold, HoldReason
from tests.contract.hostile_inserts import insert_all, prepare, wrong_answers
from tests.contract.hostile_jobs import Rendered, Renderer, added, excesses, write_templates
from tests.contract.hostile_rows import Hostile, hostile
from tests.contract.hostile_words import MARK
from tests.controlplane.api import Api, Json
from tests.property.profiles import amount, seed_of
from tests.rig.dispatching import Place
from tests.rig.postgres import Connection

TOO_LARGE = "put large input into payload"
ROWS = amount(gate=3_000, whole=10_000, nightly=100_000)
DRY_RUNS = amount(gate=40, whole=400, nightly=4_000)
BATCH = 500
AT_ONCE = 8
SEED = seed_of("HOSTILE_SEED")
LOGINS = ("team_a", "team_b")


@dataclass
class Attack:
    """The counts over all rows. `shown`: one admitted row of each case."""

    renderer: Renderer
    accepted: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    holds: Counter[str] = field(default_factory=Counter)
    rendered: int = 0
    shown: dict[tuple[object, ...], Rendered] = field(default_factory=dict)

    async def insert(self, submitter: Connection, rows: Sequence[Hostile]) -> list[int]:
        answers = await insert_all(submitter, rows)
        assert wrong_answers(rows, answers, MARK) == []
        self.refusals.update(answer.state for answer in answers if answer.state)
        return [answer.id for answer in answers if answer.id is not None]

    async def render(self, ids: Sequence[int]) -> None:
        found = await self.renderer.render(ids)
        assert len(found) == len(ids)
        self.accepted += len(found)
        for one in found:
            self.judge(one)

    def judge(self, one: Rendered | Task) -> None:
        if isinstance(one, Task):
            self.holds["UnknownTemplate"] += 1
        elif isinstance(one.verdict, Hold):
            assert one.verdict.reason is HoldReason.POLICY_DENIED
            assert len(one.verdict.detail) < 2000
            self.holds["PolicyDenied"] += 1
            # The reason for a hold may change nothing in the Job, e.g. a second machine next to the first. Then the
            # second check passes, and the Job must have no excess.
            beyond = [] if one.refused else list(excesses(one))
            assert beyond == [], f"the second check lets pass: {one.verdict.detail}"
        elif TOO_LARGE in one.refused:
            self.holds["TooLarge"] += 1  # only the row tells its size, not its kind
        else:
            assert one.refused == "", "the second check refuses what the first accepted"
            self.rendered += 1
            self.shown.setdefault(case_of(one), one)


def case_of(one: Rendered) -> tuple[object, ...]:
    """The parts of a Job that the API server could object to. Jobs of one case get one dry run."""
    asked = one.order.request
    texts = frozenset(text[:40] for text in asked.env.values())
    spec = frozenset((name, str(value)[:60]) for name, value in asked.spec.items())
    return (one.template.name, frozenset(asked.env), texts, spec, (asked.cache_key or "")[:20], one.task.queue)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def seed() -> int:
    sys.stderr.write(f"\nHOSTILE_SEED={SEED}, {ROWS} rows\n")
    return SEED


@pytest_asyncio.fixture(loop_scope="session")
async def attack(place: Place, seed: int) -> AsyncIterator[Attack]:
    """The attack after all rows went from INSERT to Job."""
    write_templates(place.templates)
    await prepare(place.database)
    made = Attack(Renderer(place.templates, place.database.url("reader"), place.namespace))
    await asyncio.gather(*(one_team(made, place, number) for number in range(len(LOGINS))))
    yield made
    await made.renderer.close()


async def one_team(attack: Attack, place: Place, number: int) -> None:
    """Inserts and renders the team's share of the rows, in batches."""
    submitter, chance = await place.database.connect(LOGINS[number]), random.Random(SEED + number)
    share = ROWS // len(LOGINS)
    for start in range(0, share, BATCH):
        rows = [hostile(chance, number * share + start + one) for one in range(min(BATCH, share - start))]
        if ids := await attack.insert(submitter, rows):
            await attack.render(ids)


def spread(shown: Iterable[Rendered]) -> list[Rendered]:
    """As many rows as may be asked about, evenly from each template."""
    by_template: dict[str, list[Rendered]] = {}
    for one in shown:
        by_template.setdefault(one.template.name, []).append(one)
    most = sorted(by_template.values(), key=len)
    chosen: list[Rendered] = []
    for number, group in enumerate(most):
        chosen += group[: (DRY_RUNS - len(chosen)) // (len(most) - number)]
    return chosen


class Trial:
    """Dry runs with the account of the dispatcher and the shipped rights."""

    def __init__(self, place: Place) -> None:
        user = yaml.safe_load((place.folder / "kubeconfig").read_text())["users"][0]["user"]
        plane = place.control_plane
        self.api = Api(plane.url, plane.ca_file, user["token"])
        self._path = f"/apis/batch/v1/namespaces/{place.namespace}/jobs"

    async def ask(self, job: Manifest) -> Json:
        params = {"dryRun": "All", "fieldValidation": "Strict"}
        return await self.api.request("POST", self._path, job, params=params)


async def extras(trial: Trial, job: Manifest) -> dict[str, object]:
    """Paths and values that the server adds to a Job by itself."""
    answer = await trial.ask(job)
    found = added(answer["spec"], job["spec"], "/spec")
    assert {key for key in answer["metadata"]["labels"] if key not in job["metadata"]["labels"]} == set()
    assert answer["metadata"]["annotations"] == job["metadata"]["annotations"]
    return {path: value for path, value in found.items() if not path.startswith("/spec/selector")}


async def beyond_template(trial: Trial, one: Rendered, plain: dict[str, object]) -> dict[str, object]:
    """Parts of the server's object that come neither from the row's Job nor from the Job of a row without wishes."""
    found = await extras(trial, one.job)
    return {path: value for path, value in found.items() if plain.get(path) != value and not is_pulling(path, one)}


def is_pulling(path: str, one: Rendered) -> bool:
    """Whether the difference is the server's default for the tag of the row's image."""
    return path.endswith("/containers/task/imagePullPolicy") and "image" in one.order.request.spec


@pytest.mark.slow
async def test_hostile_rows_get_nothing_beyond_their_template(attack: Attack, place: Place) -> None:
    assert attack.accepted + attack.refusals.total() == ROWS
    assert attack.rendered > ROWS // 8, "many are admitted"
    assert min(attack.holds["PolicyDenied"], attack.holds["UnknownTemplate"]) > ROWS // 1000
    assert {f"DI00{number}" for number in range(1, 8)} <= attack.refusals.keys()
    trial, chosen = Trial(place), spread(attack.shown.values())
    try:
        plain = {one.template.name: await extras(trial, one.plain()) for one in chosen}
        todo = iter(chosen)

        async def ask() -> None:
            for one in todo:
                assert list(excesses(one)) == []
                assert await beyond_template(trial, one, plain[one.template.name]) == {}

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(ask())
    finally:
        await trial.api.close()
    told = f"{attack.accepted} accepted, {attack.rendered} admitted, {len(attack.shown)} cases, {len(chosen)} dry runs"
    sys.stderr.write(f"{told}; {dict(attack.refusals)}; {dict(attack.holds)}\n")
