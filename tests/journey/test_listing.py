"""The list of nodes over HTTP, and the description of the API."""

import pytest

from tests.rig.commands import command
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.pools import CORE, a_pool, in_pool
from tests.rig.reasons import reason
from tests.rig.steps import insert, looks_again


@pytest.mark.slow
async def test_nodes_are_listed_with_their_free_room_and_grouped_for_a_row(place: Place) -> None:
    async with a_pool(place, 1), place.playing(), in_pool(place, MAX_PENDING=0) as dispatcher:
        await dispatcher.ready()
        rows = await insert(place, 6, **{**CORE, "env": {"PLAY": "hang"}})
        explained = await reason(dispatcher, rows[5], "NoRoomNow")
        full = [group for group in explained["nodes"] if group["why"].startswith("full: cpu ")]
        assert [group["count"] for group in full] == [1]
        _, nodes = await dispatcher.api("nodes?limit=500")
        found = {node["name"]: node for node in nodes["nodes"]}
        (name,) = full[0]["examples"]
        assert (found[name]["ready"], found[name]["free"]["cpu"] < found[name]["size"]["cpu"]) == (True, True)
        _, said = await command(dispatcher, "explain", rows[5])
        told = f"nodes: 1 {full[0]['why']} ({name}); run limits free one of them by about "
        assert told in said, "the run limit of its Pods is known"


@pytest.mark.slow
async def test_api_describes_itself(place: Place) -> None:
    async with Dispatcher(place, CHECK_ROOM="false") as dispatcher:
        await dispatcher.ready()
        await looks_again(dispatcher, 1)
        _, found = await dispatcher.api("openapi.json")
        assert found["openapi"] == "3.1.0"
        for path in found["paths"]:
            status, answer = await dispatcher.api(path.removeprefix("/api/v1/").format(name="default", id=1))
            told = found["paths"][path]["get"]["responses"][str(status)]["content"]["application/json"]["schema"]
            assert status == 200 or (told == {"$ref": "#/components/schemas/ApiRefusal"} and list(answer) == ["error"])
