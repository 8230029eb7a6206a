"""`dispatcher logs ID`: the output of a row's container, with the caller's own rights; what is known without it.

The dispatcher names the Pods of the row. If it does not answer, and DISPATCHER_NAMESPACE is set, the Pods are found by
their labels: enough for a person who may read only the namespace of Jobs, but anybody who may create Pods there can
forge labels.
"""

import asyncio
import codecs
import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Final

import click
import msgspec
from msgspec import Struct

from dispatcher.commands.explain import ask_row, warn, watch
from dispatcher.commands.reaching import KUBECONFIG_FILE, DispatcherApi, Replica, Where, demo_of, reached, read_wire_pod
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.kube.job_api import pods_path
from dispatcher.kube.objects import task_container_of
from dispatcher.kube.reflector import Resource, list_all
from dispatcher.kube.wire import WirePod, in_namespace
from dispatcher.model import launches as ids
from dispatcher.model.errors import ClusterError, ClusterRefused
from dispatcher.model.history import LaunchFacts
from dispatcher.model.tasks import TERMINAL, one_line, printable
from dispatcher.settings.definition import KubeSettings, Settings
from dispatcher.views import launches
from dispatcher.views.explanation import Explanation

LOOK_SECONDS: Final = 2
"""Seconds between two looks for a container that is to start."""
LONGEST_PIECE: Final = 1 << 16
"""Characters without a line end that are held back, at most."""
COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


class LogSelection(Struct, frozen=True):
    """Which output: of the newest launch, or of the newest one with these numbers.

    follow: wait until the container starts, and go on until it ends.
    tail: number of last lines; None: all.
    """

    task: int
    attempt: int | None = None
    launch: int | None = None
    follow: bool = False
    tail: int | None = None

    def means(self, one: LaunchFacts) -> bool:
        return self.attempt in {None, one.attempt} and self.launch in {None, one.launch}

    @property
    def selector(self) -> str:
        numbers = {ids.LABEL_TASK_ID: self.task, ids.LABEL_ATTEMPT: self.attempt, ids.LABEL_LAUNCH: self.launch}
        return ",".join(f"{key}={number}" for key, number in numbers.items() if number is not None)


async def logs(wanted: LogSelection, where: Where, settings: Settings) -> int:
    """Prints the output of the row's newest launch. Returns the exit status; 1: there is no output."""
    demo = demo_of(where, settings)
    has_own = demo is not None and (demo / KUBECONFIG_FILE).exists()  # or it runs on a cluster of its user
    kube = KubeSettings(kubeconfig=f"{demo}/{KUBECONFIG_FILE}") if has_own else settings.kube
    client = KubeClient(await log_in(kube))
    try:
        if settings.kube.namespace and not where.is_said:
            return await by_labels(wanted, settings.kube.namespace, settings.kube.installation, client)
        return await by_explanation(wanted, lambda: reached(where, settings), client)
    finally:
        await client.close()


async def by_explanation(
    wanted: LogSelection, reach: Callable[[], AbstractAsyncContextManager[DispatcherApi]], client: KubeClient
) -> int:
    known = LogWatch(wanted)
    await watch(reach, known.look)
    with_log = [one.pod for one in known.row.launches if wanted.means(one) and one.logs and one.pod]
    if with_log and await has_shown(wanted, client, known.namespace, with_log[-1]):
        return 0
    return tell_end(wanted, known.row)


class LogWatch:
    """Waits for a container, with `follow`. `row`: its last explanation. `namespace`: that of Jobs."""

    row: Explanation

    def __init__(self, wanted: LogSelection) -> None:
        self.namespace = ""
        self._wanted = wanted
        self._said = ""

    async def look(self, api: DispatcherApi) -> bool:
        """Asks once. Returns whether no container is to come."""
        self.namespace = self.namespace or (await api.ask("status", Replica)).jobs_namespace
        self.row = found = await ask_row(api, self._wanted.task)
        if not (self._wanted.follow and is_to_come(found, self._wanted)):
            return True
        if (words := f"{found.reason or found.status}: {found.message}") != self._said:
            warn(f"task {found.task}: {words}")
        self._said = words
        return False


def is_to_come(found: Explanation, wanted: LogSelection) -> bool:
    """Whether a container with wanted output may still start."""
    meant = [one for one in found.launches if wanted.means(one)]
    has_log = any(one.logs and one.ended_at is None for one in meant)
    is_over = found.status in TERMINAL or (wanted.attempt or found.attempt) < found.attempt
    has_ended = wanted.launch is not None and any(one.ended_at is not None for one in meant)
    return not (has_log or is_over or has_ended)


async def by_labels(wanted: LogSelection, namespace: str, installation: str, client: KubeClient) -> int:
    selector = f"{ids.LABEL_INSTALLATION}={installation},{wanted.selector}"
    pods = await pods_of(client, namespace, selector)
    while wanted.follow and not any(has_begun(pod) for pod in pods):
        await asyncio.sleep(LOOK_SECONDS)
        pods = await pods_of(client, namespace, selector)
    begun = [pod.metadata.name for pod in pods if has_begun(pod)]
    if begun:
        return 0 if await has_shown(wanted, client, namespace, begun[-1]) else 1
    click.echo(f"task {wanted.task}: no Pod of it has started in namespace {namespace}", err=True)
    return 1


async def pods_of(client: KubeClient, namespace: str, selector: str) -> Sequence[WirePod]:
    """Pods, the newest last. Raises ClusterError."""
    found = await list_all(client, Resource("pods", pods_path(namespace), read_wire_pod, selector))
    return sorted(found.items, key=lambda pod: (str(pod.metadata.creation_timestamp), pod.metadata.name))


def read_container(raw: msgspec.Raw) -> str:
    return task_container_of(read_wire_pod(raw), raw)


def has_begun(pod: WirePod) -> bool:
    return pod.status.phase not in {"", "Pending"}


async def has_shown(wanted: LogSelection, client: KubeClient, namespace: str, pod: str) -> bool:
    """Prints the log of the Pod. False: it has none, or it cannot be read; the cause is printed."""
    try:
        of_pod = Resource("pods", pods_path(namespace), read_container, "", f"metadata.name={pod}")
        container = next(iter((await list_all(client, of_pod)).items), "")
        asked = {"container": container, "follow": str(wanted.follow).lower()}
        tail = {} if wanted.tail is None else {"tailLines": str(wanted.tail)}
        path = in_namespace("/api/v1", namespace, "pods", pod, "log")
        async with aclosing(client.pieces(path, {**asked, **tail})) as pieces, aclosing(texts_of(pieces)) as texts:
            async for text in texts:
                click.echo(text, nl=False)
    except ClusterError as fault:
        is_forbidden = isinstance(fault, ClusterRefused) and fault.status == 403
        rights = f"; list pods and get pods/log in namespace {namespace} are needed" if is_forbidden else ""
        click.echo(one_line(f"{fault}{rights}"), err=True)
        return False
    return True


async def texts_of(pieces: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    """The output in whole lines, where it has line ends, without colours and other control characters.

    A carriage return ends a line: progress bars write one for each step.
    """
    decoder, held = codecs.getincrementaldecoder("utf-8")("replace"), ""
    async for piece in pieces:
        held += decoder.decode(piece)
        end = max(held.rfind("\n"), held.rfind("\r", 0, -1)) + 1 or (len(held) if len(held) > LONGEST_PIECE else 0)
        if end:
            yield plain(held[:end])
        held = held[end:]
    if held := held + decoder.decode(b"", final=True):
        yield plain(held)


def plain(text: str) -> str:
    return printable(COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


def tell_end(wanted: LogSelection, found: Explanation) -> int:
    """Prints what database and Job know of a launch whose Pod is gone, or why there was no launch."""
    known = [one for one in found.launches if wanted.means(one)]
    if not known:
        what = none_in_words(wanted, found)
        warn(f"task {wanted.task} has {what}; {found.reason or found.status}: {found.message}")
        return 1
    for line in launches.launch_in_words(known[-1], launches.ALL_LINES):
        click.echo(one_line(line))
    click.echo(f"task {wanted.task}: {what_is_left(known[-1])}", err=True)
    return 0 if known[-1].error else 1


def none_in_words(wanted: LogSelection, found: Explanation) -> str:
    if wanted.attempt or wanted.launch:
        return "no such launch"
    return "no launch" if found.status in TERMINAL else "no launch yet"


def what_is_left(one: LaunchFacts) -> str:
    if one.logs:
        return "its Pod is there, but its output could not be read"
    if one.error:
        return "its Pod is gone; this is the last output that was kept"
    return "its container has not started" if one.ended_at is None else "no output was kept"
