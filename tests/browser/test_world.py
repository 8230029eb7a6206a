"""The world has what the pages are to show."""

from dispatcher.model.verdicts import HoldReason
from tests.browser.world import NOT_AT_ONCE, World


async def test_world_has_a_row_for_each_reason(world: World) -> None:
    alive = {(await world.dispatcher.explain(id_))[1]["reason"] for id_ in world.rows.values()}
    assert set(HoldReason) - NOT_AT_ONCE.keys() <= alive


async def test_world_has_the_secrets_that_no_page_may_show(world: World) -> None:
    secrets = await world.secrets()
    kinds = {name.partition(" of ")[0].partition(" in ")[0] for name in secrets}
    assert kinds >= {"a planted value", "the login", "the token", "start key", "run token"}
    assert all(len(value) > 15 for value in secrets.values())
