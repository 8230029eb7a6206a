"""`helm uninstall` while tasks run, and an installation after it. It is the last file of this folder."""

from pathlib import Path
from typing import Final

from tests.node.install import BEGINNING, JOBS, OURS, as_here, ready
from tests.node.installation import Installation
from tests.node.load import Load
from tests.rig.pages import INSTALL, find_block, named_in

ROWS: Final = 3
UNINSTALL: Final = find_block(INSTALL, "# needs a cluster\nhelm uninstall ")
(INSTALLS,) = [line for line in find_block(INSTALL, BEGINNING).splitlines() if line.startswith("helm install ")]
(DELETES_KIND,) = [one for one in named_in(INSTALL) if one.startswith("kubectl delete crd ")]
STAYS: Final = f"""
kubectl get namespace {OURS} {JOBS}
kubectl -n {OURS} get secret dispatcher-database dispatcher-janitor-database dispatcher-migrate-database
kubectl -n {JOBS} get secret task-database
kubectl -n {OURS} get lease dispatcher-leader
kubectl get crd nodereservations.dispatcher.internal
"""


async def jobs_of(there: Installation, ids: list[int]) -> list[str]:
    found = await there.site.plane.admin("GET", f"/apis/batch/v1/namespaces/{JOBS}/jobs")
    wanted = set(map(str, ids))
    return [
        one["metadata"]["name"]
        for one in found["items"]
        if one["metadata"]["labels"]["dispatcher.internal/task-id"] in wanted
    ]


async def test_uninstall_lets_tasks_report_and_leaves_what_the_next_one_needs(
    scheduled: Installation, values: Path
) -> None:
    load = Load(scheduled, ROWS, seconds=8)
    await load.start(began=ROWS)
    await scheduled.shell.run(UNINSTALL)
    await scheduled.site.plane.wait_for(lambda: is_gone(scheduled), "our Pods are gone", 60)
    found = await load.ended()
    assert (found.lost, found.doubles, found.again) == (0, 0, 0)
    assert len(await jobs_of(scheduled, load.ids)) == ROWS, "nobody is there who deletes them"
    waiting = await scheduled.insert("sleep", 0.1)
    await scheduled.shell.run(f"{STAYS}\n{DELETES_KIND}")

    await scheduled.shell.run(f"{as_here(INSTALLS, scheduled.database)} -f {values}")
    await ready(scheduled.site)
    assert (await scheduled.ended(waiting))["status"] == "succeeded"
    assert len(await jobs_of(scheduled, load.ids)) == ROWS, "no row was launched again"


async def is_gone(there: Installation) -> bool:
    return not await there.pods(OURS)
