"""`python -m tests.rig.quick_janitor janitor`: `dispatcher janitor` with a round each second instead of each ten.

Lists may take a third of the time instead of a twentieth, because lists of a busy machine are slow. Everything else is
the program itself. `tests/unit/test_janitor.py` tests its own pace.
"""

from dispatcher import cli
from dispatcher.janitor import janitor


def shorten() -> None:
    vars(janitor)["EVERY_SECONDS"] = 1
    vars(janitor)["SHARE"] = 2


if __name__ == "__main__":
    shorten()
    cli.main()
