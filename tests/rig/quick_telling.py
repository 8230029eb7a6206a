"""`python -m tests.rig.quick_telling run`: `dispatcher run` that tells reasons more often.

It counts waiting rows, writes its ConfigMaps, and compares templates, each 2 s instead of each 30. Everything else is
the program itself.
"""

from functools import partial

from dispatcher import cli
from dispatcher.views import counting, surfaces
from dispatcher.views import surfaces as publishing
from dispatcher.views.surfaces import TemplateComparison


def tell_quickly() -> None:
    vars(counting)["COUNT_SECONDS"] = 2
    vars(publishing)["STATUS_SECONDS"] = vars(publishing)["ALIVE_SECONDS"] = 2
    vars(surfaces)["TemplateComparison"] = partial(TemplateComparison, every_seconds=2)


if __name__ == "__main__":
    tell_quickly()
    cli.main()
