"""SIGTERM ends the dispatcher within 30 s, whatever it waits for."""

import signal

import pytest

from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import PostgresServer
from tests.rig.steps import insert, shows


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_ends_an_idle_dispatcher_at_once(place: Place, number: signal.Signals) -> None:
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        assert await dispatcher.stop(number) == 0
        assert '"stopped"' in dispatcher.log


@pytest.mark.slow
@pytest.mark.fault(36)
async def test_sigterm_ends_a_dispatcher_whose_writes_get_no_answer(place: Place) -> None:
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        place.control_plane.pause()
        try:
            await insert(place, 20)
            await shows(dispatcher, "dispatcher_cycle_tasks", 1, 10, verdict="admit")
            assert await dispatcher.stop() == 0
        finally:
            place.control_plane.resume()


@pytest.mark.slow
@pytest.mark.fault(5, 36)
async def test_sigterm_ends_a_dispatcher_whose_database_hangs(place: Place, postgres: PostgresServer) -> None:
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        await postgres.freeze()
        try:
            assert await dispatcher.stop() == 0
        finally:
            postgres.thaw()
