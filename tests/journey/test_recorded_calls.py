"""The requests of our programs to the real API server are all in the recorded list."""

import pytest

from tests.controlplane.calls import RECORDED, Call, calls
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.janitoring import Janitor
from tests.rig.noding import nodes
from tests.rig.realities import Real

OURS = "pg-job-dispatcher/"
LEAST = frozenset({"create", "get", "list", "watch", "delete", "update"})


def asked(place: Place) -> set[Call]:
    """Calls of the programs of this place. Other tests share the API server, and some provoke faults."""
    plane = place.control_plane
    seen = [event for stage in ("ResponseComplete", "ResponseStarted") for event in plane.audit(stage=stage)]
    own = [event for event in seen if place.namespace in event.uri or place.namespace in event.user]
    return calls(event for event in own if event.user_agent.startswith(OURS))


@pytest.mark.slow
async def test_calls_of_our_programs_are_all_recorded(place: Place) -> None:
    async with (
        nodes(place, "one"),
        Dispatcher(place, TOMBSTONE_SECONDS=0, LEASE_SECONDS=15) as dispatcher,
        Janitor(place),
    ):
        world = Real(place, dispatcher)
        succeeds, fails = await world.insert("exit 0"), await world.insert("exit 65")
        await world.reaches(succeeds, "succeeded")
        await world.reaches(fails, "failed")
        await world.swept()
        await world.wait(lambda: {call.verb for call in asked(place)} >= LEAST, "every verb was asked", 20)
        assert asked(place) <= RECORDED
