"""Silent watches, expired watches, lost events and outdated lists: they delay work, and nothing goes wrong."""

import asyncio
from contextlib import aclosing

import pytest
from aiohttp import web

from tests.controlplane.waiting import wait_for
from tests.faults import http_verbs
from tests.faults.http_proxy import Exchange, KubeProxy, Verb, asks, pass_on
from tests.faults.rules import Gate, nth
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import Times, behind, creates, held, insert, looks_again, made_twice, succeeded

LISTS, WATCHES = asks("list", "jobs"), asks("watch", "jobs")


class Cut:
    """A verb for watches: passes events on until the test sets `now`, then breaks the stream."""

    def __init__(self) -> None:
        self.now = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> web.StreamResponse:
        telling = asyncio.create_task(self._tell(exchange))
        breaking = asyncio.create_task(self.now.wait())
        await asyncio.wait([telling, breaking], return_when=asyncio.FIRST_COMPLETED)
        telling.cancel()
        breaking.cancel()
        exchange.hit()
        return exchange.cut()

    async def _tell(self, exchange: Exchange) -> None:
        async with aclosing(exchange.events()) as lines:
            async for line in lines:
                await exchange.tell(line)


class Outdated:
    """The first two lists are recorded. From `begin` to `end` they are replayed, and watches break or are silent."""

    def __init__(self, proxy: KubeProxy) -> None:
        self._proxy, self._tape, self._cut, self._silence = proxy, http_verbs.Tape(), Cut(), Gate()
        proxy.add(self._tape.record, LISTS, nth(1, 2))
        proxy.add(self._cut, WATCHES, nth(1, 2))
        proxy.add(http_verbs.freeze(self._silence), WATCHES)

    async def begin(self, dispatcher: Dispatcher) -> None:
        self._replayed = self._proxy.add(self._tape.replay, LISTS)
        self._cut.now.set()
        await wait_for(lambda: self._replayed.hits >= 1, "the old list", 20, check=dispatcher.check)
        await looks_again(dispatcher, 10)

    def end(self) -> None:
        self._replayed.end()
        self._silence.open()


@pytest.mark.slow
@pytest.mark.fault(24)
async def test_silent_watch_leads_to_no_job_above_the_cap(place: Place, kube_proxy: KubeProxy) -> None:
    silence = Gate()
    rule = kube_proxy.add(http_verbs.freeze(silence), asks("watch", "jobs"))
    await insert(place, 10)
    async with place.playing() as player, behind(place, kube_proxy, MAX_JOBS=3) as dispatcher:
        await succeeded(place, dispatcher, 3)
        await held(dispatcher, "JobCap", 7)
        await looks_again(dispatcher)
        assert len(creates(place, None)) == 3
        silence.open()
        rule.end()
        await succeeded(place, dispatcher, 10)
    assert len(player.runs) == 10
    assert made_twice(place) == []


@pytest.mark.slow
@pytest.mark.fault(25)
@pytest.mark.museum("no relist on 410")
@pytest.mark.museum("in-stream 410 ignored")
@pytest.mark.parametrize("verb", [http_verbs.gone, http_verbs.gone_in_stream()], ids=["at once", "in the stream"])
async def test_expired_watch_is_listed_anew_with_growing_pauses(
    place: Place, kube_proxy: KubeProxy, verb: Verb
) -> None:
    lists = Times(lambda asked: asks("list", "jobs")(asked) and "task-id=" not in asked.query["labelSelector"])
    kube_proxy.add(pass_on, lists)
    rule = kube_proxy.add(verb, asks("watch", "jobs"))
    await insert(place, 3)
    async with place.playing(), behind(place, kube_proxy, LEASE_SECONDS=30) as dispatcher:
        await wait_for(lambda: rule.hits >= 6, "six watches", 40, check=dispatcher.check)
        assert sum(lists.pauses(0.1)[-4:]) >= 0.125 * (1 + 2 + 4 + 8) * 0.9
        assert len(lists.all) <= rule.hits + 2
        rule.end()
        await succeeded(place, dispatcher, 3, 60)
    assert made_twice(place) == []


@pytest.mark.slow
@pytest.mark.fault(26)
async def test_outdated_list_takes_over_no_run_and_makes_nothing_twice(place: Place, kube_proxy: KubeProxy) -> None:
    outdated = Outdated(kube_proxy)
    async with place.playing() as player, behind(place, kube_proxy, LEASE_SECONDS=30) as dispatcher:
        await dispatcher.ready()
        await insert(place, 2, env={"PLAY": "hang"})
        await insert(place, 2, env={"PLAY": "start-then-exit-0"})
        await insert(place, 2)
        await wait_for(lambda: len([run for run in player.runs if run.started]) == 6, "all run", 20)
        await succeeded(place, dispatcher, 2)
        await outdated.begin(dispatcher)
        await dispatcher.unready("goes back")
        outdated.end()
        await looks_again(dispatcher)
    assert (len(creates(place, None)), len(player.runs)) == (6, 6)
    assert made_twice(place) == []


@pytest.mark.slow
@pytest.mark.fault(26)
async def test_outdated_list_raises_no_cap(place: Place, kube_proxy: KubeProxy) -> None:
    outdated = Outdated(kube_proxy)
    async with place.playing() as player, behind(place, kube_proxy, MAX_JOBS=2) as dispatcher:
        await dispatcher.ready()
        await insert(place, 6, env={"PLAY": "hang"})
        await wait_for(lambda: len([run for run in player.runs if run.calls.heartbeats]) == 2, "two run", 20)
        await held(dispatcher, "JobCap", 4)
        await outdated.begin(dispatcher)
        assert len(creates(place)) == 2
        outdated.end()


@pytest.mark.slow
@pytest.mark.fault(28)
async def test_loss_of_every_third_watch_event_repeats_no_row(place: Place, kube_proxy: KubeProxy) -> None:
    lost = [kube_proxy.add(http_verbs.drop_event(3), asks("watch", resource)) for resource in ("jobs", "pods")]
    await insert(place, 30)
    async with place.playing() as player, behind(place, kube_proxy, LEASE_SECONDS=30) as dispatcher:
        await succeeded(place, dispatcher, 30, 60)
        await looks_again(dispatcher, 10)
    assert len(player.runs) == 30
    assert made_twice(place) == []
    assert min(rule.hits for rule in lost) >= 10
