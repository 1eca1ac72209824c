"""The planted bugs of the store of objects: what would let two brokers believe that they wrote one slot."""

from typing import Final

from saboteurs.planting import Bug

_BUCKET: Final = "tests/log/store/test_bucket.py"
_DIRECTORY: Final = "tests/log/store/test_directory.py"
_STOPPED: Final = "tests/log/store/test_stopped_callers.py"
_POSTGRES: Final = "tests/log/store/test_postgres_store.py"

STORE_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a bucket takes a conflict for an object that exists",
        "semel.log.store.bucket:BucketStore.create",
        "failure(error).status == 412",
        "failure(error).status in (409, 412)",
        (_BUCKET,),
    ),
    Bug(
        "a directory gives an object its name before its bytes are on the disk",
        "semel.log.store.directory:DirectoryStore._write",
        "self._sync(descriptor)",
        "",
        (_DIRECTORY,),
    ),
    Bug(
        "a directory syncs again after a sync has failed",
        "semel.log.store.directory:DirectoryStore._sync_folder",
        "self._sync_failed = True",
        "",
        (_DIRECTORY,),
    ),
    Bug(
        "a directory waits for the turn of a process that has stopped",
        "semel.log.store.directory:DirectoryStore._take_turn",
        "time.monotonic() + TURN_SECONDS_MAX",
        "time.monotonic() + 1000 * TURN_SECONDS_MAX",
        (f"{_STOPPED}::test_the_turn_of_a_process_that_was_killed_is_taken_away",),
        seconds_max=5,
    ),
    Bug(
        "a directory replaces an object after another process has taken the turn away",
        "semel.log.store.directory:DirectoryStore.replace",
        "os.replace(turn / _BODY, path)",
        "path.write_bytes(body)",
        (_STOPPED,),
    ),
    Bug(
        "a directory deletes an object after another process has taken the turn away",
        "semel.log.store.directory:DirectoryStore.delete",
        "os.replace(path, turn / _BODY)",
        "path.unlink()",
        (_STOPPED,),
    ),
    Bug(
        "calls to PostgreSQL that nobody waits for any more keep their threads",
        "semel.log.store.postgres:PostgresStore.cut_short",
        "session.cut_off()",
        "None",
        (f"{_POSTGRES}::test_calls_that_nobody_answers_and_nobody_waits_for_keep_no_threads",),
        seconds_max=40,
    ),
    Bug(
        "a process that has stopped in a transaction keeps its lock of PostgreSQL",
        "semel.log.store.postgres",
        "IDLE_SECONDS_MAX: Final = 3",
        "IDLE_SECONDS_MAX: Final = 30",
        (f"{_POSTGRES}::test_a_process_that_has_stopped_while_it_makes_the_table_holds_nobody_up",),
        seconds_max=8,
    ),
    Bug(
        "the store believes that a pooler has set its session",
        "semel.log.store.postgres",
        "\"current_setting('synchronous_commit') <> 'off'\"",
        '"true"',
        (_POSTGRES, "-k", "through_a_pooler"),
    ),
    Bug(
        "a store in PostgreSQL counts a commit whose wait was cancelled",
        "semel.log.store.postgres:PostgresStore._committed",
        "self._needs_standby and session.warned",
        "False",
        (_POSTGRES,),
    ),
    Bug(
        "a store in PostgreSQL goes on when its server waits for no standby any more",
        "semel.log.store.postgres:PostgresStore._committed",
        "not rows[0][0]",
        "False",
        (_POSTGRES,),
        seconds_max=30,
    ),
    Bug(
        "a message repeats the password in a URL that is misspelled",
        "semel.log.store.address:_shown",
        '"@" in url or "?" in url',
        "False",
        ("tests/log/store/test_address.py::test_a_message_about_a_url_does_not_repeat_its_secrets",),
    ),
    Bug(
        "a bucket that answers 400 because a connection stood still ends the broker",
        "semel.log.store.bucket:BucketStore._translated",
        "failed.code in _PASSING_CODES",
        "False",
        (f"{_BUCKET}::test_an_answer_that_does_not_say_how_it_ended_leaves_the_caller_unsure",),
    ),
)
