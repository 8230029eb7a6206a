"""Questions to the catalog and the statistics of the server about the tables behind the views."""

from __future__ import annotations

from typing import Final

from tests.integration.wall_seats import Statement

OURS: Final = "('dispatch', 'dispatch_private')"
RELATIONS: Final = f"pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname IN {OURS}"
FUNCTIONS: Final = f"pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace AND n.nspname IN {OURS}"

CATALOG: Final = [
    Statement(sql, "catalog", is_explained=False)
    for sql in (
        f"SELECT * FROM pg_stats WHERE schemaname IN {OURS}",
        f"SELECT * FROM pg_stats_ext WHERE schemaname IN {OURS}",
        f"SELECT * FROM pg_stats_ext_exprs WHERE schemaname IN {OURS}",
        "SELECT * FROM pg_statistic LIMIT 1",
        f"SELECT c.relname, pg_get_viewdef(c.oid) FROM {RELATIONS} WHERE c.relkind = 'v' ORDER BY 1",
        f"SELECT p.proname, p.prosrc, pg_get_functiondef(p.oid) FROM {FUNCTIONS} WHERE p.prokind = 'f' ORDER BY p.oid",
        f"SELECT * FROM information_schema.columns WHERE table_schema IN {OURS} ORDER BY table_name, ordinal_position",
        f"SELECT * FROM information_schema.tables WHERE table_schema IN {OURS} ORDER BY table_name",
        f"SELECT * FROM information_schema.sequences WHERE sequence_schema IN {OURS} ORDER BY sequence_name",
        f"SELECT schemaname, sequencename, last_value FROM pg_sequences WHERE schemaname IN {OURS} ORDER BY 2",
        f"SELECT pg_sequence_last_value(c.oid) FROM {RELATIONS} WHERE c.relkind = 'S' ORDER BY c.oid",
        f"SELECT c.relname, obj_description(c.oid), c.relacl FROM {RELATIONS} ORDER BY c.oid",
        "SELECT lastval()",
        "SELECT * FROM pg_prepared_statements",
        "SELECT * FROM pg_cursors",
        "SELECT usename, query FROM pg_stat_activity WHERE usename IN ('team_a', 'janitor')",
        "SELECT * FROM dispatch_private.tasks",
        "SELECT 'dispatch_private.tasks'::regclass",
        "SELECT schema_to_xml('dispatch_private', true, true, '')",
        "SELECT currtid2('dispatch.tasks', '(0,1)')",
    )
]

TOTALS: Final = [
    Statement(sql, "totals", frozenset({"total of a table"}), is_explained=False)
    for sql in (
        f"SELECT c.relname, c.relpages, c.reltuples FROM {RELATIONS} ORDER BY 1",
        f"SELECT c.relname, pg_relation_size(c.oid) FROM {RELATIONS} WHERE c.relkind IN ('r', 'i') ORDER BY 1",
        f"SELECT c.relname, pg_stat_get_live_tuples(c.oid) FROM {RELATIONS} ORDER BY 1",
    )
]
