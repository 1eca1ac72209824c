"""The planted bugs of the console."""

from typing import Final

from saboteurs.planting import Bug

_DOOR: Final = "tests/console/test_door.py"
_TOPICS: Final = "tests/console/test_pages_of_topics.py"
_GROUPS: Final = "tests/console/test_pages_of_groups.py"

CONSOLE_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a name that somebody has rebound reaches the console",
        "semel.console.door:Door.check_origin",
        "not is_own_host(host, (self._host,))",
        "not host",
        (_DOOR, "-k", "rebound"),
    ),
    Bug(
        "another page on this machine may ask",
        "semel.console.door:Door.check_origin",
        'origin is not None and origin.lower() != f"http://{host}".lower()',
        "False",
        (_DOOR, "-k", "another_page"),
    ),
    Bug(
        "a token lets in everybody who has seen it",
        "semel.console.door:Door.enter",
        "self.token = self._secret()",
        "pass",
        (_DOOR, "-k", "token_opens_one"),
    ),
    Bug(
        "any browser is let in",
        "semel.console.door:Door.session_of",
        "name == self.cookie_name and value in self._sessions",
        "self._sessions",
        (_DOOR, "-k", "lacks_one_thing"),
    ),
    Bug(
        "a console that only reads changes things",
        "semel.console.door:Door.check_change",
        "not self.allows_changes",
        "False",
        (_DOOR, "-k", "unless_changes_are_allowed"),
    ),
    Bug(
        "the token of any session will do for a change",
        "semel.console.door:Door.check_change",
        "hmac.compare_digest(token.encode(), session.change_token.encode())",
        "any(token == one.change_token for one in self._sessions.values())",
        (_DOOR, "-k", "that_of_one_session"),
    ),
    Bug(
        "a change is made without asking the door",
        "semel.console.site:Site._change",
        "self._door.check_change(request)",
        "pass",
        ("tests/console/test_site.py", "-k", "only_reads"),
    ),
    Bug(
        "a page is told what has not changed",
        "semel.console.live:_Watched.publish",
        "self.number and answer == self.latest",
        "False",
        ("tests/console/test_live.py", "-k", "then_each_change"),
    ),
    Bug(
        "a large value loses the character at each cut",
        "semel.console.records:field",
        'return {**whole, "text": text, "next": at + cut}',
        'return {**whole, "text": text, "next": at + len(piece)}',
        (_TOPICS, "-k", "make_the_whole"),
    ),
    Bug(
        "what was aborted is shown as committed",
        "semel.console.records:_shown",
        '"aborted" if is_aborted else _held(record, stable)',
        "_held(record, stable)",
        (_TOPICS, "-k", "fate"),
    ),
    Bug(
        "a transaction is aborted that another producer has begun meanwhile",
        "semel.console.transactions:abort",
        '(one.producer_id, one.producer_epoch) != (query.number("producer_id"), query.number("producer_epoch"))',
        "False",
        (_TOPICS, "-k", "goes_on"),
    ),
    Bug(
        "a group that has moved since the preview is set all the same",
        "semel.console.groups:reset",
        "now != before",
        "False",
        (_GROUPS, "-k", "preview_has_shown"),
    ),
    Bug(
        "a batch that was aborted counts for a lane",
        "semel.console.pipelines:_lane",
        "not batch.is_control and not is_aborted and marker_offset < stable",
        "not batch.is_control and marker_offset < stable",
        ("tests/console/test_pages_of_pipelines.py",),
    ),
    Bug(
        "the console makes a database that is not there",
        "semel.console.claims:_refuse_missing_file",
        "(file := missing_file(engine)) is not None",
        "(file := None) is not None",
        ("tests/console/test_pages_of_claims.py", "-k", "not_made"),
    ),
)
