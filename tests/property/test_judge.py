"""kube-scheduler is the judge: wherever our count of room is wrong, and however both change.

All its places are used, hardly a Pod waits beyond them, what is wrong with one pool costs the other nothing, and no row
loses a launch or a failure by a Pod that is taken back.
"""

from collections import Counter
from contextlib import closing
from typing import Final

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from dispatcher.model.tasks import Queue, Status
from tests.property.endings import check_end
from tests.property.judge import POOLS, JudgedWorld
from tests.property.profiles import STORY

SETTLED: Final = 90
QUIET: Final = 30
FEW: Final = settings(STORY, max_examples=STORY.max_examples // 2)


class Pool(Struct, frozen=True):
    """What our count and kube-scheduler say of one pool, and the rows that come."""

    counted: int
    places: int
    rows: int


class Chapter(Struct, frozen=True):
    """A time in which nothing changes. `restarts`: it begins with a new process."""

    pools: tuple[Pool, Pool]
    is_slow: bool
    restarts: bool


AS_COUNTED: Final = Pool(4, 4, 4)
pools = st.builds(Pool, st.sampled_from([0, 2, 4, 12]), st.sampled_from([0, 1, 2, 4, 5, 12, 60]), st.integers(0, 70))
chapters = st.builds(Chapter, st.tuples(pools, pools), st.booleans(), st.booleans())


def begin(world: JudgedWorld, chapter: Chapter) -> None:
    world.is_slow = chapter.is_slow
    for name, pool in zip(POOLS, chapter.pools, strict=True):
        world.count(name, pool.counted)
        world.places[name] = pool.places
        world.insert_rows(name, pool.rows)
    if chapter.restarts:
        world.crash("A")


@FEW
@given(st.lists(chapters, min_size=1, max_size=2))
@example([Chapter((Pool(0, 60, 70), AS_COUNTED), is_slow=True, restarts=False)])
@example([Chapter((Pool(0, 12, 70), AS_COUNTED), is_slow=False, restarts=False)])
def test_all_places_are_used_and_hardly_a_pod_waits(story: list[Chapter]) -> None:
    with closing(JudgedWorld()) as world:
        for chapter in story:
            before = world.bound()
            begin(world, chapter)
            world.seconds(SETTLED)
            rows, bound, refused, writes = world.open_by_pool(), world.bound(), world.refused(), world.network.writes
            assert bound == Counter({name: min(rows[name], max(world.places[name], before[name])) for name in POOLS})
            assert all(refused[name] <= min(1, rows[name] - bound[name]) for name in POOLS), refused
            world.seconds(QUIET)
            assert world.network.writes == writes, "nothing changes, so nothing is written"
        check_end(world)
        assert all(row.task.status is Status.SUCCEEDED and not row.task.failures for row in world.table.rows.values())
        assert all(len(starts) == 1 for starts in world.table.starts.values()), "no row began twice"


@FEW
@given(wrong=pools, most=st.integers(6, 12), is_slow=st.booleans())
def test_pool_of_another_team_is_used_whatever_one_pool_takes(wrong: Pool, most: int, is_slow: bool) -> None:
    """Also where Pods that wait have all places of MAX_JOBS."""
    with closing(JudgedWorld(most)) as world:
        begin(world, Chapter((wrong, Pool(0, 0, 0)), is_slow, restarts=False))
        world.seconds(5)
        begin(world, Chapter((wrong, Pool(4, 4, 4)), is_slow, restarts=False))
        world.seconds(30)
        bound = world.bound()
        assert bound["other"] >= min(4, most - bound["default"]), world.refused()


@FEW
@given(
    weights=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    rows=st.lists(st.tuples(st.sampled_from(POOLS), st.sampled_from("xy"), st.integers(0, 2)), min_size=2, max_size=12),
    places=st.integers(0, 6),
    fair=st.booleans(),
)
def test_place_that_waits_goes_to_the_row_that_comes_first_and_stays(
    weights: tuple[int, int], rows: list[tuple[str, str, int]], places: int, fair: bool
) -> None:
    """Rows of one shape, in two queues of other weights, come one after the other. Nobody takes a place back."""
    with closing(JudgedWorld()) as world:
        for name, weight in zip(POOLS, weights, strict=True):
            world.set_queue(Queue(name, weight=weight, fair_submitters=fair))
        world.count("default", places)
        world.places["default"] = places
        for queue, team, priority in rows:
            world.insert_rows("default", 1, queue, team, priority)
            world.seconds(3)
        world.seconds(SETTLED)
        writes, asking = world.network.writes, world.tasks_that_ask()
        world.seconds(QUIET)
        assert (world.network.writes, world.tasks_that_ask()) == (writes, asking), "the place moves to and fro"
        for task in asking:
            waiting = [world.table.rows[id_].task for id_ in world.open_rows() if not world.cluster.of_task(id_)]
            own = [one.priority for one in waiting if (one.queue, one.submitted_by) == (task.queue, task.submitted_by)]
            assert task.priority <= min(own, default=2), "a better row of its submitter has no Pod"
        check_end(world)
