"""`dispatcher.task`: a body that is asked to stop, that has lost its row, or that gets SIGTERM."""

import signal

import pytest

from tests.controlplane.waiting import wait_for
from tests.faults import postgres_verbs as verbs
from tests.faults.postgres_proxy import PostgresProxy, connects, runs
from tests.faults.rules import Gate
from tests.rig.execing import DONE, TERMINATED, one_proxy
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import SECOND, insert_row
from tests.rig.tasking import UNTIL_TOLD, Library, either_library, is_beating

database, library, proxy = one_database, either_library, one_proxy

AFTER_CANCEL = {
    "pass": (DONE, "cancelled", "stop it", None),
    "t.finish(17)": (DONE, "succeeded", None, 17),
    "1 / 0": (1, "cancelled", "stop it", None),
    "t.finish(17); 1 / 0": (1, "cancelled", "stop it", None),
    "raise Failed('no')": (1, "cancelled", "stop it", None),
    "sys.exit(0)": (DONE, "cancelled", "stop it", None),
}
ASYNC = """
    import asyncio
    async def main():
        async with quick() as t:
            try:
                say("begun")
                await asyncio.sleep(600)
            finally:
                say("unwound")
    asyncio.run(main())
"""
SYNC = """
    with quick() as t:
        try:
            say("begun")
            waits(lambda: False)  # one long sleep may begin a moment after the signal, and would miss it
        finally:
            say("unwound")
"""
SLEEPERS = {"sync": SYNC, "async": ASYNC}


@pytest.mark.parametrize("end", AFTER_CANCEL)
async def test_cancel_is_seen_by_the_body(library: Library, database: Database, end: str) -> None:
    row = await insert_row(database)
    async with library.runs(row, f"with quick() as t: say('begun'); waits(lambda: t.cancelled); {end}") as wrapper:
        await wrapper.says("begun")
        assert await row.cancel("stop it") == "processing"
        ended = await wrapper.has_ended(is_traced=True)
    now = await row.now()
    assert (ended.status, now["status"], now["error"], now["result"]) == AFTER_CANCEL[end], ended
    assert ended.said.startswith("dispatcher.task: the row says cancel\n")


async def test_lost_row_gets_no_report(library: Library, database: Database) -> None:
    row = await insert_row(database)
    body = "with quick() as t: say('begun'); waits(lambda: t.lost); say(t.cancelled); t.finish(17)"
    async with library.runs(row, body) as wrapper:
        await wrapper.says("begun")
        await row.retry()
        before = await row.now()
        ended = await wrapper.has_ended()
    assert (ended.status, ended.out, ended.said) == (DONE, b"begun\nTrue\n", "dispatcher.task: the row says lost\n")
    assert await row.now() == before


async def test_body_that_stops_because_its_row_is_lost_is_not_done(library: Library, database: Database) -> None:
    """A restore may set the row back to `waiting`. An exit with 0 would park it, as if the work might be done."""
    row = await insert_row(database)
    async with library.runs(row, "with quick() as t: say('begun'); waits(lambda: t.lost)") as wrapper:
        await wrapper.says("begun")
        await row.retry()
        ended = await wrapper.has_ended()
    assert (ended.status, ended.said) == (TERMINATED, "dispatcher.task: the row says lost\n"), ended


async def test_own_report_is_no_loss_to_a_heartbeat_that_is_late(
    library: Library, database: Database, proxy: PostgresProxy
) -> None:
    row, gate = await insert_row(database), Gate()
    rule = proxy.add(verbs.hold(gate), runs("task_heartbeat"))
    body = """
        import threading
        with quick() as t:
            say("begun"); sys.stdin.readline()
        say("reported"); waits(lambda: threading.active_count() == 1)
    """
    async with library.runs(row, body, TASK_DATABASE_URL=proxy.url(database.url("task"))) as wrapper:
        await wrapper.says("begun")
        await wait_for(lambda: gate.held, "a heartbeat is under way", check=wrapper.check)
        wrapper.go()
        await wrapper.says("reported")
        gate.open()
        ended = await wrapper.has_ended()
    assert (ended.status, ended.said, await row.status(), rule.hits) == (DONE, "", "succeeded", 1), ended


async def test_row_that_was_lost_without_a_heartbeat_stays_as_it_is(library: Library, database: Database) -> None:
    row = await insert_row(database)
    async with library.runs(row, f"with task() as t: {UNTIL_TOLD}") as wrapper:
        await wrapper.says("begun")
        await row.started(launch=2, pod=SECOND)
        before = await row.now()
        wrapper.go()
        ended = await wrapper.has_ended()
    assert (ended.status, await row.now()) == (DONE, before)
    assert "not accepted" in ended.said


@pytest.mark.parametrize("form", SLEEPERS)
async def test_row_of_another_launch_is_left_alone(library: Library, database: Database, form: str) -> None:
    row = await insert_row(database)
    await row.started(launch=2, pod=SECOND)
    before = await row.now()
    ended = await library.run(row, SLEEPERS[form])
    said = "dispatcher.task: the row is not this launch's, or not any more: nothing to do\n"
    assert (ended.status, ended.out, ended.said) == (DONE, b"", said)
    assert await row.now() == before


@pytest.mark.parametrize("form", SLEEPERS)
async def test_sigterm_unwinds_the_body_and_leaves_the_row(library: Library, database: Database, form: str) -> None:
    row = await insert_row(database)
    async with library.runs(row, SLEEPERS[form]) as wrapper:
        await wrapper.says("begun")
        wrapper.terminate()
        ended = await wrapper.has_ended(is_traced=True)
    assert (ended.status, ended.out) == (TERMINATED, b"begun\nunwound\n"), ended
    assert await row.status() == "processing"
    assert [launch["outcome"] for launch in await row.launches()] == [None]
    await row.started(launch=2, pod=SECOND)


@pytest.mark.parametrize("form", SLEEPERS)
async def test_sigterm_after_a_cancel_ends_the_row(library: Library, database: Database, form: str) -> None:
    row = await insert_row(database)
    async with library.runs(row, SLEEPERS[form]) as wrapper:
        await wrapper.says("begun")
        await row.cancel("stop it")
        await wait_for(lambda: b"says cancel" in wrapper.err, "the cancel is seen", check=wrapper.check)
        wrapper.terminate()
        ended = await wrapper.has_ended(is_traced=True)
    now = await row.now()
    assert (ended.status, now["status"], now["error"]) == (TERMINATED, "cancelled", "stop it"), ended


async def test_body_that_finishes_after_sigterm_has_succeeded(library: Library, database: Database) -> None:
    """A second SIGTERM does not disturb it."""
    row = await insert_row(database)
    body = f"""
        with task() as t:
            try:
                {UNTIL_TOLD}
            except SystemExit:
                {UNTIL_TOLD}
                t.finish(17)
    """
    async with library.runs(row, body) as wrapper:
        for count in (1, 2):
            await wrapper.says("begun", count)
            wrapper.terminate()
        wrapper.go()
        ended = await wrapper.has_ended()
    assert (ended.status, (await row.now())["result"]) == (DONE, 17), ended


OWN_HANDLERS = {
    "flag": """
        import signal
        with quick() as t:
            told = []
            signal.signal(signal.SIGTERM, lambda *_: told.append(1))
            say("begun"); waits(lambda: told); {last}
    """,
    "imported before": """
        from signal import SIGTERM
        import signal
        with quick() as t:
            before, told = signal.signal(SIGTERM, lambda *_: told.append(1)), []
            signal.signal(SIGTERM, before); signal.signal(SIGTERM, lambda *_: told.append(1))
            say("begun"); waits(lambda: told); {last}
    """,
    "asyncio": """
        import asyncio, signal
        async def main():
            async with quick() as t:
                told = asyncio.Event()
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
                say("begun"); await told.wait(); {last}
        asyncio.run(main())
    """,
    "imported by name": """
        from signal import SIGTERM, signal
        with quick() as t:
            told = []
            signal(SIGTERM, lambda *_: told.append(1))
            say("begun"); waits(lambda: told); {last}
    """,
    "uvloop": """
        import asyncio, signal, uvloop, warnings
        warnings.simplefilter("ignore")
        async def main():
            async with quick() as t:
                told = asyncio.Event()
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
                say("begun"); await told.wait(); {last}
        uvloop.run(main())
    """,
    "exits with 0": """
        import signal
        with quick() as t:
            def ends(*_):
                {last}; sys.exit(0)
            signal.signal(signal.SIGTERM, ends)
            say("begun"); waits(lambda: False)
    """,
    "swallowed": """
        with quick() as t:
            try:
                say("begun"); waits(lambda: False)
            except SystemExit:
                {last}
    """,
}


@pytest.mark.parametrize("how", OWN_HANDLERS)
async def test_end_after_sigterm_is_no_success_unless_the_body_says_so(
    library: Library, database: Database, how: str
) -> None:
    for last, status, then in (("pass", TERMINATED, "processing"), ("t.finish(17)", DONE, "succeeded")):
        row = await insert_row(database)
        async with library.runs(row, OWN_HANDLERS[how].format(last=last)) as wrapper:
            await wrapper.says("begun")
            wrapper.terminate()
            ended = await wrapper.has_ended(is_traced=True)
        assert (ended.status, await row.status()) == (status, then), ended


HANDS_ON = {
    "calls it": "before(*told)",
    "sets it again": "signal.signal(signal.SIGTERM, before); signal.raise_signal(signal.SIGTERM)",
    "sets the default": "signal.signal(signal.SIGTERM, signal.SIG_DFL); signal.raise_signal(signal.SIGTERM)",
}


@pytest.mark.parametrize("how", HANDS_ON)
async def test_handler_that_hands_sigterm_on_unwinds_the_body(library: Library, database: Database, how: str) -> None:
    """As those of coverage and of PyTorch Lightning do. An event loop that ends sets the default."""
    row = await insert_row(database)
    body = f"""
        import signal
        with quick() as t:
            def hands_on(*told):
                {HANDS_ON[how]}
            before = signal.signal(signal.SIGTERM, hands_on)
            say("begun"); waits(lambda: False)
    """
    async with library.runs(row, body) as wrapper:
        await wrapper.says("begun")
        wrapper.terminate()
        ended = await wrapper.has_ended(is_traced=True)
    assert (ended.status, await row.status()) == (TERMINATED, "processing"), ended


async def test_handler_of_sigterm_is_restored(library: Library, database: Database) -> None:
    row = await insert_row(database)
    body = """
        import _signal, signal
        def own(*_): ...
        set_, under = signal.signal, _signal.signal
        signal.signal(signal.SIGTERM, own)
        with task() as t:
            say(signal.getsignal(signal.SIGTERM) is own)
        say(signal.getsignal(signal.SIGTERM) is own, "TASK_TAKEN_BY" in os.environ)
        say(signal.signal is set_, _signal.signal is under)
    """
    assert (await library.run(row, body)).out == b"False\nTrue False\nTrue True\n"


async def test_interrupt_is_no_failure_of_the_body(library: Library, database: Database) -> None:
    row = await insert_row(database)
    ended = await library.run(row, "with task(): raise KeyboardInterrupt")
    assert (ended.status, await row.status()) == (-2, "processing")


@pytest.mark.parametrize("form", SLEEPERS)
async def test_sigterm_before_the_start_leaves_the_row_unchanged(
    library: Library, database: Database, proxy: PostgresProxy, form: str
) -> None:
    row = await insert_row(database)
    before = await row.now()
    rule = proxy.add(verbs.hold(Gate()), connects)
    async with library.runs(row, SLEEPERS[form], TASK_DATABASE_URL=proxy.url(database.url("task"))) as wrapper:
        await wait_for(lambda: rule.seen, "connecting", check=wrapper.check)
        wrapper.terminate()
        ended = await wrapper.has_ended(is_traced=True)
    assert (ended.status, ended.out) == (TERMINATED, b""), ended
    assert await row.now() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_during_the_report_does_not_lose_it(
    library: Library, database: Database, proxy: PostgresProxy, number: signal.Signals
) -> None:
    """Nor does a handler that the body has left: an exit with 0 and without a report would park the row."""
    row = await insert_row(database)
    rule = proxy.add(verbs.drop_before, runs("task_finish"))
    url = proxy.url(database.url("task"))
    body = "import signal\nwith task() as t: signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); t.finish(17)"
    async with library.runs(row, body, TASK_DATABASE_URL=url) as wrapper:
        await wait_for(lambda: rule.hits, "a report fails", check=wrapper.check)
        wrapper.process.send_signal(number)
        hits = rule.hits
        await wait_for(lambda: rule.hits > hits, "it is reported again", check=wrapper.check)
        rule.end()
        ended = await wrapper.has_ended()
    assert (ended.status, (await row.now())["result"]) == (DONE, 17), ended


async def test_task_in_another_thread_has_no_handler_and_reports(library: Library, database: Database) -> None:
    row = await insert_row(database)
    body = f"""
        import signal, threading
        def work():
            with quick() as t:
                {UNTIL_TOLD}
                t.finish(17)
        one = threading.Thread(target=work)
        one.start()
        one.join()
        say(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
    """
    async with library.runs(row, body) as wrapper:
        await wrapper.says("begun")
        await is_beating(row)
        wrapper.go()
        ended = await wrapper.has_ended()
    assert (ended.status, ended.out, await row.status()) == (DONE, b"begun\nTrue\n", "succeeded")


PASSES_OVER = {
    "KeyboardInterrupt": "try: waits(lambda: False)\n    except KeyboardInterrupt: pass",
    "its own handler": "signal.signal(signal.SIGINT, lambda *_: ends.append(1)); waits(lambda: ends)",
}


@pytest.mark.parametrize("body", PASSES_OVER.values(), ids=PASSES_OVER)
async def test_body_that_ends_by_the_stop_signal_of_its_image_is_not_done(
    library: Library, database: Database, body: str
) -> None:
    """STOPSIGNAL is SIGINT in the images of Postgres, SIGQUIT in those of nginx."""
    row = await insert_row(database)
    begin = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a gate in the background ignores it
    program = f"import signal\n{begin}\nends = []\nwith quick() as t:\n    say('begun')\n    {body}"
    async with library.runs(row, program) as wrapper:
        await wrapper.says("begun")
        await is_beating(row)
        wrapper.process.send_signal(signal.SIGINT)
        ended = await wrapper.has_ended()
    assert (ended.status, await row.status()) == (TERMINATED, "processing"), ended


async def test_signal_that_a_program_uses_for_itself_is_no_stop(library: Library, database: Database) -> None:
    row = await insert_row(database)
    body = """
        import signal
        with quick() as t:
            told = []
            signal.signal(signal.SIGUSR1, lambda *_: told.append(1))
            say("begun"); waits(lambda: told)
    """
    async with library.runs(row, body) as wrapper:
        await wrapper.says("begun")
        wrapper.process.send_signal(signal.SIGUSR1)
        ended = await wrapper.has_ended()
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended


async def test_task_that_was_made_before_a_fork_belongs_to_the_child(library: Library, database: Database) -> None:
    row = await insert_row(database)
    program = """
        t = quick()
        if child := os.fork():
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        with t:
            t.finish(17)
    """
    ended = await library.run(row, program)
    assert (ended.status, (await row.now())["result"]) == (DONE, 17), ended
