"""Writes `docs/variables.md` from `dispatcher/jobs/env.py`: SQL has the same list. See `make docs`."""

from pathlib import Path
from typing import Final

from dispatcher.jobs.env import NAMES, PREFIXES, SUFFIXES

PAGE: Final = Path(__file__).with_name("variables.md")
HEAD: Final = """\
<!-- Made from dispatcher/jobs/env.py by `make docs`. Change it there. -->
# Variables that programs run or trust

A row sets a variable of this list only where the template opens it by its name (`env.NAME`): shells, interpreters,
build tools, loaders and clients run the value as code, or trust the server, file or key that it names. Names count
in any case. No such list is complete. A template that has Secrets should open the names that it needs, such as
`env.APP_MODE`, and not `env`.
"""


def variables_page() -> str:
    parts = {
        "Names": sorted(NAMES),
        "Names that begin so": [f"{prefix}*" for prefix in sorted(PREFIXES)],
        "Names that end so": [f"*{suffix}" for suffix in SUFFIXES],
    }
    told = (f"## {title}\n\n{' '.join(f'`{name}`' for name in names)}\n" for title, names in parts.items())
    return "\n".join([HEAD, *told])


if __name__ == "__main__":
    PAGE.write_text(variables_page(), encoding="utf-8")
