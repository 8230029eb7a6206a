"""What a rule of the Postgres proxy does to a statement; when a verb returns and the link stands, it is passed on."""

from tests.controlplane.waiting import moment
from tests.faults.postgres_frames import DONE, ERROR, READY, ROW, Frame
from tests.faults.postgres_proxy import Link, Verb
from tests.faults.rules import Gate


async def drop_before(link: Link) -> None:
    """Never forwarded; both connections break. At a `sync`: what was carried out is rolled back."""
    link.cut()
    link.hit()


async def drop_after(link: Link) -> None:
    """Carried out; the answer is thrown away up to the server's ReadyForQuery, then both connections break.

    The hit says how the server stood then: `I`, committed, or `T`, within a transaction that is lost with it.
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
    """Forwarded late."""

    async def verb(link: Link) -> None:
        await moment(seconds)
        link.hit()

    return verb


def hold(gate: Gate) -> Verb:
    """Forwarded when the gate opens, and then for sure: also when the client has long given up."""

    async def verb(link: Link) -> None:
        await gate.passed(link.client_gone)
        link.hit()

    return verb


def freeze(gate: Gate) -> Verb:
    """From this statement on nothing passes either way, with open sockets, until the gate opens."""

    async def verb(link: Link) -> None:
        link.freeze()
        link.hit()
        await gate.passed(link.client_gone)
        link.thaw()

    return verb


async def truncate(link: Link) -> None:
    """Carried out; of its first row, or else of its result's tag, half a frame arrives, then both connections break."""

    def halve(frame: Frame) -> None:
        if frame.type not in {ROW, DONE}:
            link.pass_back(frame)
            return
        raw = frame.encoded()
        link.cut(raw[: len(raw) // 2])
        link.hit()

    link.on_answers(halve)
