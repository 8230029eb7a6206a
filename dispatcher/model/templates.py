"""What a template lets rows set: a row of the table `templates`."""

from collections.abc import Mapping

from msgspec import Struct


class OfferedTemplate(Struct, frozen=True):
    """One row of the table. The fields are its columns, in their order.

    row_may_set: fields and variables that rows may set; None: the template has a fault.
    bounds: most cpu and memory, as quantities, and most seconds.
    images, machines: globs.
    sets: variables that the template or PASS_ENV sets.
    note: the template's description, or its fault.
    """

    name: str
    row_may_set: tuple[str, ...] | None
    bounds: Mapping[str, str | int]
    images: tuple[str, ...]
    machines: tuple[str, ...]
    sets: tuple[str, ...]
    note: str
