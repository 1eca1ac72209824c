"""The planted bugs of the console."""

from typing import Final

from saboteurs.planting import Bug

_DOOR: Final = "tests/console/test_door.py"
_TOPICS: Final = "tests/console/test_pages_of_topics.py"
_PEOPLE: Final = "tests/console/test_people.py"
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
        "not self.allows_changes(session)",
        "False",
        (_DOOR, "-k", "unless_changes_are_allowed"),
    ),
    Bug(
        "a person who may only look changes things",
        "semel.console.door:Door.allows_changes",
        "session.person.may_change",
        "True",
        (_PEOPLE, "-k", "only_looks_unless"),
    ),
    Bug(
        "a person who was removed is still let in",
        "semel.console.door:Door._as_now",
        "person is None",
        "False",
        (_PEOPLE, "-k", "only_looks_unless"),
    ),
    Bug(
        "a printed address lets in whom nobody has added",
        "semel.console.door:Door.enter",
        "self.people is not None",
        "False",
        (_PEOPLE, "-k", "address_of_another"),
    ),
    Bug(
        "passwords can be tried without end",
        "semel.console.people:People.check",
        "len(self._wrong) >= WRONG_MAX",
        "False",
        (_PEOPLE, "-k", "wrong_passwords"),
    ),
    Bug(
        "an audit is named that lies outside of the directory",
        "semel.console.audits:Audits.one",
        "next((one for one in self._newest() if one.name == name), None)",
        "self._directory / name",
        ("tests/console/test_pages_of_audits.py", "-k", "outside"),
    ),
    Bug(
        "a few bytes of Avro take all the memory",
        "semel.console.avro:_Reader.value",
        "self._left < 0",
        "False",
        ("tests/console/test_avro.py", "-k", "claim_a_million"),
    ),
    Bug(
        "the marker of another transaction stands beside an aborted record",
        "semel.console.records:_Markers.of",
        "offset > record.offset",
        "True",
        ("tests/console/test_pages_of_topics.py", "-k", "names_the_marker"),
    ),
    Bug(
        "a duplicate is no pixel beside a thousand batches",
        "semel.charts.drawing:stacked",
        "max(scale * count, SEEN_MIN)",
        "scale * count",
        ("tests/charts/test_drawing.py", "-k", "stand_upon"),
    ),
    Bug(
        "a kept verdict is overwritten",
        "semel.audit.history:_named",
        "os.link(unfinished, path)",
        "os.replace(unfinished, path)",
        ("tests/audit/test_history.py", "-k", "file_of_its_own"),
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
        "semel.console.site:Site._take",
        "self._door.check_change(request)",
        "self._door.session_of(request)",
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
        "replays of one label hide those of another",
        "semel.console.applications:counted",
        "outcomes.get(match[1], 0) + round(_figure(match[2]))",
        "round(_figure(match[2]))",
        ("tests/console/test_replays.py", "-k", "added_up"),
    ),
    Bug(
        "the console makes a database that is not there",
        "semel.console.claims:_refuse_missing_file",
        "(file := missing_file(engine)) is not None",
        "(file := None) is not None",
        ("tests/console/test_pages_of_claims.py", "-k", "not_made"),
    ),
    Bug(
        "the console shows the password of the metrics where its settings are printed",
        "semel.console.broker_door:BrokerDoor.__repr__",
        "f'BrokerDoor({self.place})'",
        "repr(tuple(self))",
        ("tests/console/test_pages_of_decisions.py", "-k", "login"),
    ),
    Bug(
        "a console that ends under an open page prints tracebacks",
        "semel.console.server:Console._serve",
        "(OSError, TimeoutError, asyncio.CancelledError)",
        "(OSError, TimeoutError)",
        ("tests/console/test_site.py::test_a_console_that_ends_under_an_open_page_prints_nothing",),
    ),
    Bug(
        "a page that waits for too long is told nothing",
        "semel.console.server:Console._in_time",
        "raise PageRefused(504, message) from None",
        "raise",
        ("tests/console/test_site.py::test_a_cluster_that_does_not_answer_in_time_is_one_line",),
    ),
)
