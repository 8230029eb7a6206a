"""Reads amounts that people write. An amount that is no quantity counts as not there, and is counted in a metric."""

from collections.abc import Mapping

from dispatcher.model.amounts import amounts
from dispatcher.runtime.metrics import UNREADABLE_AMOUNTS


def amounts_of(resource: str, written: Mapping[str, str | int] | None) -> dict[str, int]:
    """Amounts in thousandths. `resource`: kind of the object, for the metric."""
    texts = {name: str(amount) for name, amount in (written or {}).items()}
    found = amounts(texts.items())
    if len(found) < len(texts):
        UNREADABLE_AMOUNTS.labels(resource).inc(len(texts) - len(found))
    return found
