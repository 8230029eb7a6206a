"""What a row says of itself is read by the dispatcher's login, as the row has it."""

import json

from dispatcher.pg.questions import questions
from tests.integration.looking import opened
from tests.rig.postgres import Database


async def test_marks_of_a_row_are_read_as_they_are(database: Database) -> None:
    row = await database.insert_task(batch="july", labels={"month": "7"})
    bare = await database.insert_task()
    admin = await database.session("admin")
    await admin.execute("UPDATE dispatch_private.tasks SET progress = 0.25, note = 'a', error = 'b' WHERE id = $1", row)
    async with opened(database.url("reader")) as session, questions(session) as rows:
        found, empty, none = await rows.marks(row), await rows.marks(bare), await rows.marks(10**12)
        assert session.answered_at == float("-inf"), "the snapshot is still open"
    assert found is not None
    assert (found.batch, found.labels, found.progress, found.note, found.error) == (
        "july",
        {"month": "7"},
        0.25,
        "a",
        "b",
    )
    assert empty is not None
    assert (empty.batch, empty.labels, empty.progress, empty.note, empty.error) == (None, {}, None, None, None)
    assert none is None
    assert session.answered_at > 0


async def test_labels_of_another_form_are_read_as_text(database: Database) -> None:
    """Only an administrator can write them."""
    row, admin = await database.insert_task(), await database.session("admin")
    async with opened(database.url("reader")) as session:
        for labels, read in (({"a": {"b": [1]}}, {"a": '{"b":[1]}'}), ([1], {})):
            await admin.execute("SET session_replication_role = replica")
            await admin.execute("UPDATE dispatch_private.tasks SET labels = $2 WHERE id = $1", row, labels)
            async with questions(session) as rows:
                found = await rows.marks(row)
            assert found is not None
            assert found.labels == read, json.dumps(labels)
