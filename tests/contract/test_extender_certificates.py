"""kube-scheduler and our extender off loopback: only clients with a certificate of the one authority get an answer."""

import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.scheduling import fast_clock_extender
from tests.scheduling.certificates import OF_CLIENTS, OF_SERVERS, Authority, Pair
from tests.scheduling.kube_scheduler import entry
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.own_extender import OwnExtender

pytest_plugins = ["tests.scheduling.fixtures"]


@dataclass(frozen=True, slots=True)
class Secured:
    """Our extender with the certificates of a folder, the authority that it trusts, and another one."""

    own_extender: OwnExtender
    folder: Path
    authority: Authority
    other: Authority

    def asked_with(self, pair: Pair | None, authority: Authority | None = None) -> Json:
        """The configuration of a scheduler that shows this pair and trusts this authority."""
        files = {"certFile": str(pair.certificate), "keyFile": str(pair.key)} if pair else {}
        believed = {"caFile": str((authority or self.authority).certificate)}
        return entry(self.own_extender.url, enableHTTPS=True, tlsConfig=believed | files)

    async def answers(self, pair: Pair, authority: Authority) -> bool:
        """Whether a client that shows this pair and trusts this authority gets an answer."""
        context = ssl.create_default_context(cafile=authority.certificate)
        context.load_cert_chain(pair.certificate, pair.key)
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.post(
                    f"{self.own_extender.url}/filter", json={"Pod": {}, "NodeNames": []}, ssl=context
                ) as answer,
            ):
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def look_again(self) -> None:
        """Makes the extender read its files again, and returns when it has."""
        looks = self.own_extender.log.count("certificates")
        await fast_clock_extender.move_clock_forward(self.own_extender)
        await wait_for(
            lambda: self.own_extender.log.count("certificates") > looks, "the extender reports its certificates"
        )


@asynccontextmanager
async def secure(
    extender_kubeconfig: Path, folder: Path, program: tuple[str, ...] | None = None
) -> AsyncIterator[Secured]:
    authority, other = Authority(folder, "ours"), Authority(folder, "other")
    tls = folder / "tls"
    tls.mkdir()
    serve_with(authority, tls)
    own_extender = OwnExtender(extender_kubeconfig, EXTENDER_TLS_DIR=tls)
    own_extender.program = program or own_extender.program
    async with own_extender:
        await own_extender.ready()
        yield Secured(own_extender, tls, authority, other)


def serve_with(authority: Authority, tls: Path) -> None:
    """Writes key, certificate and authority as a mounted Secret has them."""
    made = authority.pair("server", usage=OF_SERVERS)
    for source, name in ((made.key, "tls.key"), (made.certificate, "tls.crt"), (authority.certificate, "ca.crt")):
        shutil.copy(source, tls / name)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def secured(extender_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    async with secure(extender_kubeconfig, tmp_path_factory.mktemp("authorities")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def renewing(extender_kubeconfig: Path, tmp_path: Path) -> AsyncIterator[Secured]:
    """An extender whose files a test changes; its clock can be put forward so that it reads them again."""
    async with secure(extender_kubeconfig, tmp_path, fast_clock_extender.PROGRAM) as made:
        yield made


async def test_client_certificate_of_the_trusted_authority_is_accepted(node_group: NodeGroup, secured: Secured) -> None:
    nodes = await node_group.nodes(2)
    client = secured.authority.pair("client", usage=OF_CLIENTS)
    scheduler = node_group.scheduler(secured.asked_with(client))
    pod = await node_group.pod(scheduler, notes={"history-nodes": f'["{nodes[1]}"]'})
    assert await node_group.bound(pod) == [nodes[1]]


async def test_printed_configuration_names_the_certificate_files(secured: Secured) -> None:
    (extender,) = (await secured.own_extender.printed())["extenders"]
    assert extender["urlPrefix"] == secured.own_extender.url
    assert extender["enableHTTPS"] is True
    assert {"caFile", "certFile", "keyFile"} == set(extender["tlsConfig"])


@pytest.mark.fault(60)
async def test_client_without_a_certificate_is_refused(node_group: NodeGroup, secured: Secured) -> None:
    await refused(node_group, secured, None)


@pytest.mark.parametrize("usage", [OF_CLIENTS, OF_SERVERS], ids=["of another authority", "of a server"])
async def test_client_with_a_wrong_certificate_is_refused(node_group: NodeGroup, secured: Secured, usage: str) -> None:
    signer = secured.other if usage == OF_CLIENTS else secured.authority
    await refused(node_group, secured, signer.pair("wrong", usage=usage))


async def refused(node_group: NodeGroup, secured: Secured, pair: Pair | None) -> str:
    """A Pod that a scheduler with this certificate cannot place: the connection ends before any call."""
    await node_group.nodes(1)
    before = await secured.own_extender.answered("filter")
    pod = await node_group.pod(node_group.scheduler(secured.asked_with(pair)))
    await node_group.held(pod, "SchedulerError", f'Post "{secured.own_extender.url}/filter": ')
    assert await secured.own_extender.answered("filter") == before
    return pod


async def test_scheduler_refuses_an_extender_of_another_authority(node_group: NodeGroup, secured: Secured) -> None:
    await node_group.nodes(1)
    client = secured.authority.pair("client", usage=OF_CLIENTS)
    pod = await node_group.pod(node_group.scheduler(secured.asked_with(client, secured.other)))
    await node_group.held(pod, "SchedulerError", "certificate signed by unknown authority")


async def test_renewed_client_certificate_needs_no_restart(node_group: NodeGroup, secured: Secured) -> None:
    shown = secured.other.pair("renewed", usage=OF_CLIENTS)
    pod = await refused(node_group, secured, shown)
    right = secured.authority.pair("renewed", usage=OF_CLIENTS)
    shutil.copy(right.key, shown.key)
    shutil.copy(right.certificate, shown.certificate)
    await node_group.bound(pod)


async def test_replaced_authority_is_trusted_and_the_old_one_no_more(renewing: Secured) -> None:
    old, new = [each.pair("client", usage=OF_CLIENTS) for each in (renewing.authority, renewing.other)]
    assert await renewing.answers(old, renewing.authority)
    serve_with(renewing.other, renewing.folder)
    await renewing.look_again()
    assert await renewing.answers(new, renewing.other)
    assert not await renewing.answers(old, renewing.other)


async def test_extender_keeps_its_old_files_while_the_new_ones_do_not_fit(renewing: Secured) -> None:
    client = renewing.authority.pair("client", usage=OF_CLIENTS)
    half = renewing.authority.pair("half", usage=OF_SERVERS)
    shutil.copy(half.certificate, renewing.folder / "tls.crt")
    await renewing.look_again()
    assert await renewing.answers(client, renewing.authority)
