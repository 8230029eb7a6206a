"""The protocol holds in every run of the model. The decisions are those of production. All runs together are large.

Two runs at a time, each in its own process. So the memory of a run is free again after its end.
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.model.configurations import RUNS
from tests.model.explore import Found, explore
from tests.model.world import Configuration

AT_A_TIME = 2
FEWEST_STATES = 1_000_000


pytestmark = pytest.mark.slow  # the model is explored for minutes


@pytest.fixture(scope="module")
def found() -> dict[str, Found]:
    with ProcessPoolExecutor(AT_A_TIME, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        return dict(zip([run.name for run in RUNS], pool.map(explore, RUNS), strict=True))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_protocol_holds(found: dict[str, Found], run: Configuration) -> None:
    result = found[run.name]
    print(f"| {run.name} | {result.states:,} | {result.edges:,} |")  # noqa: T201  # the output is for the reader of a run
    assert not result.broken, result


def test_runs_visit_a_million_states(found: dict[str, Found]) -> None:
    assert sum(result.states for result in found.values()) >= FEWEST_STATES
