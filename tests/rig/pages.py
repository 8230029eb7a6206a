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
NAMED: Final = re.compile(r"`([^`]+)`")
TOOLS: Final = frozenset({"curl", "dispatcher", "helm", "kubectl", "psql"})
PROGRAMS: Final = frozenset({"dispatcher extender", "dispatcher run"})
"""Names of programs in the text. A Pod runs them, a reader does not."""

RUNBOOKS: Final = tuple(page for page in PAGES if page.startswith("docs/runbooks/"))
AUTHOR, INSTALL, OPERATOR, SUBMITTER = (f"docs/{name}.md" for name in ("author", "install", "operator", "submitter"))
TUTORIAL: Final = "docs/tutorial.md"
ADOPTING: Final = "docs/adopting.md"
ADOPTED: Final = ("dispatcher adopt", "INSERT INTO dispatch.tasks", "INSERT INTO dispatch.queues")
ON_NODES: Final = (OPERATOR, *RUNBOOKS)
"""The pages of which every command runs on real nodes."""
ENABLES_SCHEDULER: Final = "# needs a cluster\nhelm upgrade dispatcher deploy/chart -n dispatcher -f values.yaml --set"


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


def lines_for_a_cluster(*pages: str) -> list[str]:
    """The lines of the blocks that need a cluster, of these pages or of all. Each line occurs once."""
    blocks = [block for block in all_blocks() if block.needs_cluster and (not pages or block.page in pages)]
    lines = [line for block in blocks for line in block.text.splitlines()]
    return [line for line in dict.fromkeys(lines) if not line.startswith("#")]


def commands_for_nodes() -> list[str]:
    """The lines for a cluster and the commands in the text of ON_NODES. Each occurs once, without its comment."""
    lines = map(without_comment, lines_for_a_cluster(*ON_NODES))
    return list(dict.fromkeys((*lines, *(one for page in ON_NODES for one in named_in(page)))))


def without_comment(line: str) -> str:
    return re.sub(r"(^|\s+)# .*", "", line)


def named_in(page: str) -> list[str]:
    """The commands in the text of the page, outside of its blocks. A name without an argument is no command."""
    text = FENCE.sub("", read_page(page))
    found = [" ".join(code.split()) for code in NAMED.findall(text)]
    return [one for one in found if one.partition(" ")[0] in TOOLS and " " in one and one not in PROGRAMS]


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


def recipes_of(page: str) -> list[str]:
    """The blocks of a page that a reader pastes into a shell or into psql."""
    return [block.text for block in blocks_of(page, read_page(page)) if block.is_pasted]


def statements_of(page: str) -> list[str]:
    """The blocks of a page that a reader pastes into psql."""
    return [block.text for block in blocks_of(page, read_page(page)) if block.language in SQL]


MAKE: Final = "test_make_knows_every_target_of_a_block"
RECIPE: Final = "test_recipe_of_the_submitters_page_runs_as_it_is_pasted"
RUN_BY: Final[Mapping[tuple[str, str], str]] = {
    ("README.md", "make demo"): MAKE,
    ("README.md", "make test"): MAKE,
    ("CONTRIBUTING.md", "make test"): MAKE,
    (TUTORIAL, "make demo"): MAKE,
    (TUTORIAL, "dispatcher try"): "test_task_of_the_tutorial_is_tried",
    (TUTORIAL, "dispatcher render"): "test_template_of_the_tutorial_becomes_a_job",
    (TUTORIAL, "SELECT name"): "test_row_of_the_tutorial_is_inserted_and_explained",
    ("README.md", "INSERT"): "test_statements_of_the_readme_insert_and_show_a_row",
    ("README.md", "SELECT"): "test_calls_of_the_readme_run_a_row",
    **dict.fromkeys([(ADOPTING, one) for one in ADOPTED], "test_page_shows_what_the_command_says"),
    (AUTHOR, "dispatcher try"): "test_try_on_the_page_reports_its_payload_as_the_result",
    (AUTHOR, "SELECT"): "test_calls_on_the_page_are_valid_in_the_database",
    **{(SUBMITTER, text.partition("\n")[0]): RECIPE for text in statements_of(SUBMITTER)},
    (SUBMITTER, "export"): "test_shell_of_the_submitters_page_inserts_and_waits",
    (INSTALL, "CREATE"): "test_logins_of_the_installation_do_their_work",
    (INSTALL, "\\i sql/roles.sql"): "test_administrator_of_the_server_does_it_by_hand",
    (INSTALL, "SELECT setval"): "test_statement_after_a_logical_replication_lets_inserts_go_on",
    (OPERATOR, "REVOKE"): "test_statements_of_the_operators_page_change_roles_and_queues",
    (OPERATOR, "UPDATE"): "test_statements_of_the_operators_page_change_roles_and_queues",
}
"""The test of a block, by its page and its first words."""
