"""The code blocks of the pages. A reader pastes a block into a shell or into psql, so each block runs in a test.

A block that needs a cluster says so in its first line. RUN_BY names the test of every other block.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tests.house.tree import ROOT, files, shown

PAGES: Final = tuple(shown(path) for path in files() if path.suffix == ".md")
FENCE: Final = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
SHELL: Final = frozenset({"sh", "bash", "console", "shell", "shell-session", "zsh"})
SQL: Final = frozenset({"sql", "psql", "postgresql"})
NEEDS_CLUSTER: Final = "# needs a cluster\n"

AUTHOR, OPERATOR, SUBMITTER = "docs/author.md", "docs/operator.md", "docs/submitter.md"
MAKE = "test_make_knows_every_target_of_a_block"
RUN_BY: Final[Mapping[tuple[str, str], str]] = {
    ("README.md", "make demo"): MAKE,
    ("README.md", "make test"): MAKE,
    ("CONTRIBUTING.md", "make test"): MAKE,
    ("README.md", "INSERT"): "test_statements_of_the_readme_insert_and_show_a_row",
    ("README.md", "SELECT"): "test_calls_of_the_readme_run_a_row",
    (AUTHOR, "SELECT"): "test_calls_on_the_page_are_valid_in_the_database",
    (AUTHOR, "ask"): "test_code_blocks_of_the_page_are_in_the_examples",
    (SUBMITTER, "INSERT"): "test_statements_of_the_submitters_page_work_on_a_row",
    (SUBMITTER, "SELECT reason"): "test_submitter_asks_why_a_row_waits",
    (SUBMITTER, "SELECT attempt"): "test_submitter_asks_what_became_of_the_launches_of_a_row",
    (OPERATOR, "psql"): "test_logins_of_the_operators_page_do_their_work",
    (OPERATOR, "REVOKE"): "test_statements_of_the_operators_page_change_roles_and_queues",
    (OPERATOR, "UPDATE"): "test_statements_of_the_operators_page_change_roles_and_queues",
}
"""The test of a block, by its page and its first words."""


class Block(NamedTuple):
    page: str
    language: str
    text: str

    @property
    def is_pasted(self) -> bool:
        """Whether a reader pastes it into a shell or into psql."""
        return self.language in SHELL | SQL

    @property
    def needs_cluster(self) -> bool:
        return self.text.startswith(NEEDS_CLUSTER)


def all_blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page, read_page(page))]


def blocks_of(page: str, text: str) -> Iterator[Block]:
    for words, body in FENCE.findall(text):
        yield Block(page, words.partition(" ")[0].lower(), body)


def read_page(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def find_block(page: str, beginning: str) -> str:
    """The text of the page's one block for a shell or psql that begins with these words."""
    pasted = [block.text for block in blocks_of(page, read_page(page)) if block.is_pasted]
    found = [text for text in pasted if text.startswith(beginning)]
    assert len(found) == 1, f"{len(found)} blocks of {page} begin with {beginning!r}: change RUN_BY or the page"
    return found[0]
