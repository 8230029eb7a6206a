"""Our faults of a template's file are those that the API server and kubectl find in it."""

import asyncio
import copy
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dispatcher.jobs.fields import dotted, field_faults
from dispatcher.jobs.template_text import read_manifest
from docs.make_fields import FILE, fields_of
from tests.controlplane.api import KubeFault
from tests.controlplane.binaries import KUBECTL, programs
from tests.controlplane.cluster import ControlPlane
from tests.property.profiles import amount
from tests.rig.whole_job import parent_of, paths, whole_job

LEFT_OUT = object()
EACH = amount(gate=5, whole=5, nightly=1)
"""Each so many of the mutants is judged."""
ODD: tuple[Any, ...] = (LEFT_OUT, None, "", "x", "64MB", 3, 1.5, 2**40, True, [], [None], {}, {"x": "y"})
AT_ONCE = 16
UNREAD = ("strict decoding error", "cannot unmarshal", "unable to parse quantity", "quantities must match", "unmarshal")
"""Words of the API server about a Job that it could not read. It refuses others for what they mean."""
SCALARS = [
    "2024-01-01 00:00:00", "2024-01-01t10:00:00.10+02:00", "2024-13-45", "22:22", "190:20:30", "!!binary aGk=",
    "!!str 5", "'5'", "y", "Y", "n", "yes", "No", "on", "OFF", "true", "yEs", "'y'", "~", "null", "nULL", "0o644",
    "0644", "08", "0x1F", "0b11", "-0b11", "1_000", "+5", "-0", "1e3", "1E3", "1.0", "1.", ".5", "1.10", "-1.5e-3",
    "1e21", "1e400", "0.1e1",
    "9223372036854775807", "-9223372036854775808", "1.2.3", "+", "0x", "._5", "1__0", "0_7",
    "{a: b}", "{1: a, 2.5: b, no: c}", "!!set {a, b}", "=", "<<", "-.5", "+.5", "09.5", "0o8", "1e", "e1", "1_e3",
]  # fmt: skip

MERGES = [
    "&a {x: 1, w: 1}", "&b {w: 2, z: 2}", "{<<: *a, w: 3}", "{w: 3, <<: *a}", "{<<: *a, <<: *b}", "{<<: [*a, *b]}",
    "{z: 3, <<: [*b, *a]}", "{'<<': *a}",
]  # fmt: skip


async def test_file_has_the_fields_of_the_api_server(control_plane: ControlPlane) -> None:
    assert FILE.read_text(encoding="utf-8") == await fields_of(control_plane), "make docs"


def mutants() -> list[tuple[str, dict[str, Any]]]:
    """The Job with one part that is left out or odd, and the Job with one unknown field in each of its objects."""
    made = list[tuple[str, dict[str, Any]]]()
    for path in paths(whole_job()):
        for odd in ODD:
            manifest = whole_job()
            parent = parent_of(manifest, path)
            if odd is LEFT_OUT:
                del parent[path[-1]]
            elif type(odd) is type(parent[path[-1]]) and odd not in ("", "64MB"):
                continue  # another value of the type
            else:
                parent[path[-1]] = copy.deepcopy(odd)
            made.append((f"{dotted(path)} = {'left out' if odd is LEFT_OUT else odd!r}", manifest))
        manifest = whole_job()
        if isinstance(part := parent_of(manifest, (*path, "")), dict):
            part["odd"] = "x"
            made.append((f"{dotted(path)} with an odd field", manifest))
    return made


async def refusal_of(plane: ControlPlane, namespace: str, manifest: dict[str, Any]) -> str:
    """What the API server says of a Job that it does not take; empty: it takes it."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    try:
        await plane.admin("POST", path, manifest, params={"dryRun": "All", "fieldValidation": "Strict"})
    except KubeFault as fault:
        return str(fault)
    return ""


@pytest.mark.slow
async def test_faults_of_fields_are_those_of_the_api_server(control_plane: ControlPlane, namespace: str) -> None:
    """What is a fault here is refused there, but for a blank item. And what the server cannot read is a fault here."""
    assert await refusal_of(control_plane, namespace, whole_job()) == ""
    assert list(field_faults(whole_job())) == []
    places, wrong, ends = asyncio.Semaphore(AT_ONCE), list[str](), Counter[str]()

    async def compare(name: str, manifest: dict[str, Any]) -> None:
        told = [fault.words for fault in field_faults(manifest)]
        async with places:
            refused = await refusal_of(control_plane, namespace, manifest)
        ends["refused" if refused else "taken"] += 1
        ends["told"] += bool(told)
        if told and not refused and not name.endswith("] = None"):
            wrong.append(f"{name}: a false alarm: {told}")
        if any(words in refused for words in UNREAD) and not told:
            wrong.append(f"{name}: not told: {refused[:200]}")

    async with asyncio.TaskGroup() as group:
        for name, manifest in mutants()[::EACH]:
            group.create_task(compare(name, manifest))
    print(dict(ends))  # noqa: T201  # the figures are the purpose
    assert not wrong, "\n".join(wrong)


async def test_yaml_is_read_as_kubectl_reads_it(control_plane: ControlPlane, tmp_path: Path) -> None:
    kubectl = (await asyncio.to_thread(programs, KUBECTL))["kubectl"]
    file = tmp_path / "kubeconfig"
    control_plane.kubeconfig(file, token=control_plane.admin_token, namespace="default")
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n" + "".join(
        f"  key{number}: {scalar}\n" for number, scalar in enumerate([*SCALARS, *MERGES])
    )
    child = await asyncio.create_subprocess_exec(
        kubectl, "create", "--kubeconfig", file, "--dry-run=client", "--validate=false", "-o", "json", "-f", "-",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, said = await child.communicate(text.encode())
    assert child.returncode == 0, said.decode()
    theirs, ours = msgspec.json.decode(out)["data"], read_manifest(text)["data"]
    read = [(one, ours[f"key{at}"], theirs[f"key{at}"]) for at, one in enumerate([*SCALARS, *MERGES])]
    differ = [one for one in read if sorted_json(one[1]) != sorted_json(one[2])]
    assert not differ, differ


def sorted_json(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")
