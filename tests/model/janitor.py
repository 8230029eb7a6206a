"""Steps of the janitor: it reads the row, lists the Jobs, and makes one call. Everybody else, and another janitor, may
act in between.
"""

from tests.model import row as rows
from tests.model.properties import check_closing
from tests.model.row import WAITING, End, Return, Row, is_over
from tests.model.state import Intent, State, seen
from tests.model.world import World, moved


def janitor_steps(world: World, state: State) -> None:
    if not world.config.janitor:
        return
    if not is_over(state.row) and not (state.row.cancel and world.lacks("the janitor ends cancelled runs")):
        asked = world.decisions.closing(state.row, seen(state.jobs))
        if asked is not None:
            call(world, state, asked, state, fair=True)
    if world.config.janitor == "stale":
        late_janitor(world, state)


def late_janitor(world: World, state: State) -> None:
    held = state.janitor
    if held is None:
        if not is_over(state.row):
            world.step("the janitor reads the row", "", state._replace(janitor=state.row))
    elif isinstance(held, Row):
        asked = world.decisions.closing(held, seen(state.jobs))
        world.step("the janitor lists the Jobs", "", state._replace(janitor=asked))
    else:
        call(world, state, held, state._replace(janitor=None), fair=False)


def call(world: World, state: State, asked: Intent, after: State, *, fair: bool) -> None:
    """The janitor's call is one compare-and-set. A call that matches no row changes nothing."""
    row = called(world, state.row, asked)
    if row == state.row:
        if after is not state:
            world.step("the janitor's call matches no row", "", after)
        return
    check_closing(world, state, asked, row)
    if row.attempt > world.config.attempts:
        world.is_cut = True
        return
    world.step("the janitor " + verb(asked), "", moved(after, row), fair=fair)


def called(world: World, row: Row, asked: Intent) -> Row:
    without = world.rules.without
    if isinstance(asked, Return):
        return rows.janitor_return(row, asked, world.config.max_failures, is_stale=True, without=without)
    if isinstance(asked, End):
        return rows.janitor_end(row, asked, world.config.max_failures, without)
    assert asked is not None
    assert not isinstance(asked, Row)
    attempt, token = asked
    return rows.janitor_cancel(row, attempt, token, without)


def verb(asked: Intent) -> str:
    if isinstance(asked, Return):
        return "returns the run"
    if isinstance(asked, End):
        return "retries the row" if asked.status == WAITING else "ends the row"
    return "ends the cancelled run"
