"""The faults of the Postgres proxy: what a rule does with a statement.

When a verb returns and the link is not cut, the statement is passed on.
"""

from tests.controlplane.waiting import moment
from tests.faults.postgres_frames import DONE, ERROR, READY, ROW, Frame
from tests.faults.postgres_proxy import Link, Verb
from tests.faults.rules import Gate


async def drop_before(link: Link) -> None:
    """Does not forward the frame, and breaks both connections. At a `sync` the executed statement is rolled back."""
    link.cut()
    link.hit()


async def drop_after(link: Link) -> None:
    """Forwards the statement, drops the answer up to ReadyForQuery, then breaks both connections.

    The hit ends with the server's transaction status: `I`, committed, or `T`, in a transaction that is rolled back.
    """
    words: list[str] = []

    def swallow(frame: Frame) -> None:
        if frame.type == ERROR:
            words.append("failed")
        if frame.type == READY:
            link.cut()
            link.hit(" ".join([*words, frame.body.decode()]))

    link.on_answers(swallow)


def delay(seconds: float) -> Verb:
    """Forwards the statement after `seconds`."""

    async def verb(link: Link) -> None:
        await moment(seconds)
        link.hit()

    return verb


def hold(gate: Gate) -> Verb:
    """Forwards the statement when the gate opens, even if the client has given up."""

    async def verb(link: Link) -> None:
        await gate.passed(link.client_gone)
        link.hit()

    return verb


def freeze(gate: Gate) -> Verb:
    """Stops both directions from this statement on until the gate opens. The sockets stay open."""

    async def verb(link: Link) -> None:
        link.freeze()
        link.hit()
        await gate.passed(link.client_gone)
        link.thaw()

    return verb


async def truncate(link: Link) -> None:
    """Forwards the statement, sends half of its first row's frame, and breaks both connections.

    Without rows: half of the frame of the command tag.
    """

    def halve(frame: Frame) -> None:
        if frame.type not in {ROW, DONE}:
            link.pass_back(frame)
            return
        raw = frame.encoded()
        link.cut(raw[: len(raw) // 2])
        link.hit()

    link.on_answers(halve)
