"""What a run of the suite has measured: the faults and what became of the rows meanwhile, sizes and times.

`make node` begins both files anew. A line is written at once: a test that fails later loses none.
"""

from pathlib import Path

from tests.node.load import Outcome

FOLDER = Path(__file__).parents[2] / "build" / "node"
FAULTS, SIZES = FOLDER / "faults.md", FOLDER / "sizes.md"
HEAD_OF_FAULTS = "| fault | rows | lost | done twice | launched again | longest stall, s |\n|---|---|---|---|---|---|\n"
HEAD_OF_SIZES = "| what | measured |\n|---|---|\n"


class Book:
    def __init__(self) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for file, head in ((FAULTS, HEAD_OF_FAULTS), (SIZES, HEAD_OF_SIZES)):
            if not file.exists():
                file.write_text(head)

    def enter(self, fault: str, found: Outcome) -> None:
        stall = f"{found.stall_seconds:.1f}"
        add(FAULTS, fault, found.rows, found.lost, found.doubles, found.again, stall)

    def note(self, what: str, measured: str) -> None:
        add(SIZES, what, measured)


def add(table: Path, *cells: object) -> None:
    with table.open("a") as file:
        file.write(f"| {' | '.join(map(str, cells))} |\n")
