"""Reads kinds of rows that were never judged, and judges each kind once by the templates."""

from collections.abc import Sequence
from typing import Protocol

from dispatcher.model.launches import Offer
from dispatcher.model.tasks import Kind
from dispatcher.model.verdicts import Hold


class Kinds(Protocol):
    """The query for kinds."""

    async def kinds(self, ids: Sequence[int]) -> list[Kind]: ...


class KnownOffers(Protocol):
    """The templates' offers to kinds. A kind is judged once, until a template changes."""

    def offer(self, kind: Kind) -> Offer | Hold: ...
    def known_offer(self, digest: bytes) -> Offer | Hold | None: ...


async def learn_kinds(rows: Kinds, offers: KnownOffers, ids: Sequence[int]) -> None:
    """Judges the kinds of these rows. `ids`: one row of each kind."""
    for kind in await rows.kinds(ids) if ids else ():
        offers.offer(kind)
