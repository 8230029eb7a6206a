"""kube-scheduler and our extender off loopback: who has no certificate of the one authority is not answered."""

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
from tests.scheduling.nodes_and_pods import Ground
from tests.scheduling.own_extender import OurExtender
from tests.scheduling.scripted import Serving, scripted

pytest_plugins = ["tests.scheduling.fixtures"]


@dataclass(frozen=True, slots=True)
class Secured:
    """Our extender with the certificates of a folder, the authority that it believes, and one that it does not."""

    ours: OurExtender
    folder: Path
    authority: Authority
    other: Authority

    def asked_with(self, pair: Pair | None, authority: Authority | None = None) -> Json:
        """How a scheduler asks it that shows these, and believes this authority."""
        files = {"certFile": str(pair.certificate), "keyFile": str(pair.key)} if pair else {}
        believed = {"caFile": str((authority or self.authority).certificate)}
        return entry(self.ours.url, enableHTTPS=True, tlsConfig=believed | files)

    async def answers(self, pair: Pair, authority: Authority) -> bool:
        """Whether somebody with that certificate, who believes that authority, gets an answer."""
        context = ssl.create_default_context(cafile=authority.certificate)
        context.load_cert_chain(pair.certificate, pair.key)
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{self.ours.url}/filter", json={"Pod": {}, "NodeNames": []}, ssl=context) as answer,
            ):
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def look_again(self) -> None:
        """Returns when it has looked at its files after this call."""
        looks = self.ours.log.count("certificates")
        await fast_clock_extender.put_forward(self.ours)
        await wait_for(lambda: self.ours.log.count("certificates") > looks, "it says what it found")


@asynccontextmanager
async def secure(look_only: Path, folder: Path, program: tuple[str, ...] | None = None) -> AsyncIterator[Secured]:
    authority, other = Authority(folder, "ours"), Authority(folder, "other")
    tls = folder / "tls"
    tls.mkdir()
    serve_with(authority, tls)
    ours = OurExtender(look_only, EXTENDER_TLS_DIR=tls)
    ours.program = program or ours.program
    async with ours:
        await ours.ready()
        yield Secured(ours, tls, authority, other)


def serve_with(authority: Authority, tls: Path) -> None:
    """As a mounted Secret has them."""
    made = authority.pair("server", usage=OF_SERVERS)
    for source, name in ((made.key, "tls.key"), (made.certificate, "tls.crt"), (authority.certificate, "ca.crt")):
        shutil.copy(source, tls / name)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def secured(look_only: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    async with secure(look_only, tmp_path_factory.mktemp("authorities")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def renewing(look_only: Path, tmp_path: Path) -> AsyncIterator[Secured]:
    """Its files are changed, and its clock is put forward so that it looks at them again."""
    async with secure(look_only, tmp_path, fast_clock_extender.PROGRAM) as made:
        yield made


async def test_33_a_client_of_its_authority_is_answered(ground: Ground, secured: Secured) -> None:
    nodes = await ground.nodes(2)
    client = secured.authority.pair("client", usage=OF_CLIENTS)
    scheduler = ground.scheduler(secured.asked_with(client))
    pod = await ground.pod(scheduler, notes={"history-nodes": f'["{nodes[1]}"]'})
    assert await ground.bound(pod) == [nodes[1]]


async def test_33_the_printed_configuration_names_the_files_of_the_pod(secured: Secured) -> None:
    (extender,) = (await secured.ours.printed())["extenders"]
    assert extender["urlPrefix"] == secured.ours.url
    assert extender["enableHTTPS"] is True
    assert {"caFile", "certFile", "keyFile"} == set(extender["tlsConfig"])


@pytest.mark.fault(60)
async def test_33_one_without_a_certificate_is_not(ground: Ground, secured: Secured) -> None:
    await refused(ground, secured, None)


@pytest.mark.parametrize("usage", [OF_CLIENTS, OF_SERVERS], ids=["of another authority", "of a server"])
async def test_33_one_with_a_wrong_certificate_is_not(ground: Ground, secured: Secured, usage: str) -> None:
    signer = secured.other if usage == OF_CLIENTS else secured.authority
    await refused(ground, secured, signer.pair("wrong", usage=usage))


async def refused(ground: Ground, secured: Secured, pair: Pair | None) -> str:
    """A Pod that a scheduler with such a certificate cannot place: the connection ends, and nobody is asked."""
    await ground.nodes(1)
    before = await secured.ours.answered("filter")
    pod = await ground.pod(ground.scheduler(secured.asked_with(pair)))
    await ground.held(pod, "SchedulerError", f'Post "{secured.ours.url}/filter": ')
    assert await secured.ours.answered("filter") == before
    return pod


async def test_33_a_scheduler_asks_nobody_whom_its_authority_does_not_know(ground: Ground, secured: Secured) -> None:
    await ground.nodes(1)
    client = secured.authority.pair("client", usage=OF_CLIENTS)
    pod = await ground.pod(ground.scheduler(secured.asked_with(client, secured.other)))
    await ground.held(pod, "SchedulerError", "certificate signed by unknown authority")


async def test_33_a_renewed_client_certificate_needs_no_restart(ground: Ground, secured: Secured) -> None:
    shown = secured.other.pair("renewed", usage=OF_CLIENTS)
    pod = await refused(ground, secured, shown)
    right = secured.authority.pair("renewed", usage=OF_CLIENTS)
    shutil.copy(right.key, shown.key)
    shutil.copy(right.certificate, shown.certificate)
    await ground.bound(pod)


async def test_33_a_replaced_authority_is_believed_and_the_old_one_no_more(renewing: Secured) -> None:
    old, new = [each.pair("client", usage=OF_CLIENTS) for each in (renewing.authority, renewing.other)]
    assert await renewing.answers(old, renewing.authority)
    serve_with(renewing.other, renewing.folder)
    await renewing.look_again()
    assert await renewing.answers(new, renewing.other)
    assert not await renewing.answers(old, renewing.other)


async def test_33_while_files_do_not_fit_together_it_serves_with_those_before(renewing: Secured) -> None:
    client = renewing.authority.pair("client", usage=OF_CLIENTS)
    half = renewing.authority.pair("half", usage=OF_SERVERS)
    shutil.copy(half.certificate, renewing.folder / "tls.crt")
    await renewing.look_again()
    assert await renewing.answers(client, renewing.authority)


async def test_33_without_an_authority_kube_scheduler_believes_anybody(
    ground: Ground, secured: Secured, tmp_path: Path
) -> None:
    await ground.nodes(1)
    stranger = Authority(tmp_path, "stranger").pair("server", usage=OF_SERVERS)
    async with scripted(Serving(tls=stranger.served())) as extender:
        await ground.bound(await ground.pod(ground.scheduler(entry(extender.url, enableHTTPS=True))))
        assert extender.of("filter")
