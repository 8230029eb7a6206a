"""A hold ends by the clock of the API server, whatever the clock of the extender's machine says."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.controlplane.waiting import wait_for
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.own_extender import OwnExtender
from tests.scheduling.reservations import ReservedNodes, is_held, reserved_nodes_of

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")
SECONDS = 25
"""Of a hold. The extender is in doubt for the first ten, and `wait_until_held` gives up after 20."""


@pytest.mark.slow
@pytest.mark.fault(61)
@pytest.mark.parametrize("wrong_by", [-300, 300])
async def test_skew_of_five_minutes_does_not_move_the_end_of_a_hold(
    node_group: NodeGroup, own_extender: OwnExtender, extender_kubeconfig: Path, wrong_by: int
) -> None:
    wrong = OwnExtender(extender_kubeconfig)
    wrong.program = (sys.executable, "-m", "tests.scheduling.skewed_clock_extender", str(wrong_by))
    async with wrong:
        await wrong.ready()
        reserved = await reserved_nodes_of(node_group, wrong, own_extender)
        (node,) = await node_group.nodes(1, cpu="3900m")
        hold = await reserved.reservations.hold(node, {"cpu": "2"}, jobName="ours", seconds=SECONDS)
        ends_at = datetime.fromisoformat(await reserved.reservations.made_at(hold)) + timedelta(seconds=SECONDS)
        await reserved.wait_until_held(node)

        async def is_over() -> bool:
            return not await is_held(wrong, node)

        await wait_for(is_over, "the hold is over", 60, check=wrong.check)
        late = datetime.now(UTC) - ends_at
        assert timedelta(0) <= late < timedelta(seconds=5)
        await reserved.reservations.wait_for_phase(
            hold, "Expired", f"its time was over, at {ends_at:%Y-%m-%dT%H:%M:%SZ}"
        )


async def test_end_in_the_past_by_a_wrong_clock_is_reported(reserved: ReservedNodes) -> None:
    (node,) = await reserved.node_group.nodes(1)
    early = datetime.now(UTC) - timedelta(minutes=5)
    hold = await reserved.reservations.hold(node, {"cpu": "1"}, jobName="ours", expires_at=early)
    await reserved.reservations.wait_for_phase(hold, "Expired", "its time was over before it was made, at 20")
