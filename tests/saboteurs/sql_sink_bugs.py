"""The planted bugs of the sinks into databases: what they say, and which names and tables they take."""

from typing import Final

from saboteurs.planting import Bug

_SERVERS: Final = "tests/spark/tables/test_sink_servers.py"
_NAMES: Final = "tests/spark/tables/test_sink_names.py"

SQL_SINK_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a Delta table goes although another sink has rows in it",
        "semel.ui.cli.reset_lakes:_claims",
        'noted = opened.read(columns=["txn"])["txn"].to_pylist() if has_any else []',
        "noted = []",
        ("tests/ui/cli/test_reset_lakes.py", "-k", "delta_table_goes"),
    ),
    Bug(
        "an Iceberg table goes although another sink has rows in it",
        "semel.ui.cli.reset_lakes:iceberg",
        "refuse_others(f'iceberg:{name}', sinks, sink)",
        "pass",
        ("tests/ui/cli/test_reset_lakes.py", "-k", "iceberg_table_with_rows"),
    ),
    Bug(
        "a generated column of MariaDB is found when rows are moved",
        "semel.spark.tables.mysql:columns_of",
        "bool(computed)",
        "False",
        (_NAMES, "-k", "generated and mariadb"),
    ),
    Bug(
        "a generated column of SQLite is taken for another one",
        "semel.spark.tables.sqlite:generated_of",
        "hidden in (2, 3)",
        "hidden == 1",
        (_NAMES, "-k", "generated and sqlite"),
    ),
    Bug(
        "the staging table in MariaDB has no primary key",
        "semel.spark.tables.mysql:MysqlConnection.staged",
        "{**types, TASK_COLUMN: 'bigint', **COUNTED}",
        "{**types, TASK_COLUMN: 'bigint'}",
        (_NAMES, "-k", "without_a_primary_key"),
    ),
    Bug(
        "a driver of a sink waits for PostgreSQL as long as the system does",
        "semel.spark.tables.postgres_copy:connection_of",
        '{"connect_timeout": seconds, **conninfo_to_dict(url), "client_encoding": "UTF8"}',
        '{**conninfo_to_dict(url), "client_encoding": "UTF8"}',
        (_SERVERS, "-k", "as_long_as_the_url_says"),
    ),
    Bug(
        "a key without an index is found when the first batch runs",
        "semel.spark.tables.postgres:Postgres.check",
        "columns and write.key",
        "False",
        (_SERVERS, "-k", "when_it_is_made and postgresql"),
    ),
    Bug(
        "the sink that refuses its key is not named",
        "semel.spark.tables.sink:named",
        "type(error) is ValueError",
        "False",
        (_SERVERS, "-k", "when_it_is_made and sqlite"),
    ),
    Bug(
        "a sink whose database goes away is not named",
        "semel.spark.tables.servers:Server.failing",
        "self.sink",
        "self.table",
        (_SERVERS, "-k", "goes_away"),
    ),
    Bug(
        "a text that is too long is told without its row",
        "semel.spark.tables.postgres_copy:row_of",
        "shown is None",
        "True",
        (_SERVERS, "-k", "column_and_row"),
    ),
)
