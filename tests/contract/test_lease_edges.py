"""Terms at their limits: a rival's term between two of our rounds, and two lengths while the lease changes."""

from aiohttp import web

from tests.contract.scripted_api import ScriptedApi
from tests.contract.scripted_lease import Replicas


async def test_term_of_a_rival_in_between_ends_our_term(replicas: Replicas) -> None:
    """Our renewal takes so long that a rival takes over and releases the lease.

    The same attempt gets the lease back.
    """
    first, second = await replicas.leader(), replicas.one()
    before = first.term()
    await second.run_once()
    replicas.clock.move(13.4)

    async def rival_comes_and_goes(api: ScriptedApi, request: web.Request) -> web.StreamResponse:
        replicas.clock.move(1.7)
        await second.run_once()
        assert second.is_trusted()
        await second.release()
        return await replicas.api.serve(request)

    replicas.api.faults["PUT"].append(rival_comes_and_goes)
    await first.run_once()
    assert first.is_trusted()
    assert first.term() == before + 1


async def test_rival_waits_for_a_deleted_lease_as_long_as_its_holder_wanted(replicas: Replicas) -> None:
    first, second = await replicas.leader(60), replicas.one(2)
    await second.run_once()
    replicas.clock.move(3)
    assert await first.run_once() == 3
    replicas.api.lease = None
    replicas.clock.move(0.2)
    while replicas.clock.at < 1005.9:
        replicas.clock.at += await second.run_once()
        assert not (first.is_trusted() and second.is_trusted())
