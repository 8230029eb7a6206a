"""`python -m tests.quick_telling run`: `dispatcher run` that tells reasons more often.

It counts waiting rows, writes its ConfigMaps, and compares templates, each 2 s instead of each 30. Everything else is
the program itself.
"""

from functools import partial

from dispatcher import cli
from dispatcher.dashboard import overview, publishing
from dispatcher.dashboard.comparing import Comparing
from dispatcher.programs import telling


def tell_quickly() -> None:
    vars(overview)["COUNT_SECONDS"] = 2
    vars(publishing)["STATUS_SECONDS"] = vars(publishing)["ALIVE_SECONDS"] = 2
    vars(telling)["Comparing"] = partial(Comparing, every_seconds=2)


if __name__ == "__main__":
    tell_quickly()
    cli.main()
