"""The rules that protect the cluster from strangers' browsers, and from other sites' pages in a browser.

Pure, except for the secrets that it makes. In this order:

1. The Host of each request is a name that no foreign name server can point at the console: an address in digits,
   `localhost`, or the name that the console listens on. This prevents DNS rebinding.
2. If a request says which page made it (`Origin`), that must be the console's own page.
3. Only a session gets answers about the cluster: the printed address has a token that opens one session, or, if people
   log in, their name and password open it. The browser keeps the session in a cookie that no script can read and no
   other site can send.
4. A change needs `--allow-changes`, a session of somebody who may change things, and the token of that session in a
   header, which only the console's own page can know.

No path may serve anything without asking here. A token must never open two sessions.
"""

import hmac
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from semel.ui.console.http import PageRefused, Request
from semel.ui.console.people import People, Person
from semel.wire.hosts import is_own_host

# The maximum of sessions; one more ends the oldest.
SESSIONS_MAX: Final = 64
CHANGE_HEADER: Final = "x-semel-change"

JSON: Final = "application/json"

_ONLY_READS: Final = "this console only reads: start it with --allow-changes to change anything"
_ONLY_YOU_READ: Final = "you may only read: semel console user add --may-change lets a person change things"

_NOT_LET_IN: Final = "this browser has not been let in: open the address that `semel console` printed last"
_NOT_LOGGED_IN: Final = "this browser has not been let in: log in"


class Session(NamedTuple):
    """The session of a browser: the value of its cookie, and the token that it has to send with a change."""

    cookie: str
    change_token: str
    # None for a browser that came by the printed address.
    person: Person | None = None


class Door:
    """One for each console."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        allow_changes: bool,
        people: People | None = None,
        secret: Callable[[], str] = secrets.token_urlsafe,
    ) -> None:
        """With `people`, the printed address opens no session: people log in."""
        self.people = people
        self._allows_changes = allow_changes
        self.cookie_name = f"semel_console_{port}"
        self._host = host
        self._secret = secret
        self._sessions: dict[str, Session] = {}
        self.token = secret()

    def enter(self, token: str) -> Session:
        """The session that a token opens; after that, only the new `token` opens one."""
        if self.people is not None or not hmac.compare_digest(token.encode(), self.token.encode()):
            raise PageRefused(403, "this address was used before, or is another console's: open the one printed last")
        self.token = self._secret()
        return self._begin(None)

    def login(self, request: Request, name: str, password: str) -> Session:
        """The new session of a person. Refuses a request that does not come from the console's own page. It takes some
        time.
        """
        if self.people is None:
            raise PageRefused(404, "nobody logs in here: open the address that `semel console` printed last")
        if "origin" not in request.headers or content_type_of(request) != JSON:
            raise PageRefused(403, "a login comes from the console's own page")
        return self._begin(self.people.check(name, password))

    def logout(self, request: Request) -> None:
        """End the session of this browser."""
        if "origin" not in request.headers:
            raise PageRefused(403, "a logout comes from the console's own page")
        self._sessions.pop(self._session(request).cookie, None)

    def allows_changes(self, session: Session) -> bool:
        """Whether this session may change anything."""
        return self._allows_changes and (session.person is None or session.person.may_change)

    def _begin(self, person: Person | None) -> Session:
        session = Session(self._secret(), self._secret(), person)
        self._sessions[session.cookie] = session
        while len(self._sessions) > SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        return session

    def set_cookie(self, session: Session) -> str:
        """The value of Set-Cookie with which a browser keeps its session until it is closed."""
        return f"{self.cookie_name}={session.cookie}; Path=/; HttpOnly; SameSite=Strict"

    def no_cookie(self) -> str:
        """The value of Set-Cookie with which a browser forgets its session."""
        return f"{self.cookie_name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"

    def check_origin(self, request: Request) -> None:
        """Refuse a request that another site's page may have sent."""
        host = request.headers.get("host", "")
        if not is_own_host(host, (self._host,)):
            raise PageRefused(
                403, "the console is reached by its address in digits, by localhost, or by the name it has"
            )
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host}".lower():
            raise PageRefused(403, "another page sent this request")

    def session_of(self, request: Request) -> Session:
        """The session of this browser, with the rights that its person has now. PageRefused without a session, and
        while nobody can tell whether the person may still come in.
        """
        return self._as_now(self._session(request))

    def _session(self, request: Request) -> Session:
        for part in request.headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie_name and value in self._sessions:
                return self._sessions[value]
        raise PageRefused(403, _NOT_LET_IN if self.people is None else _NOT_LOGGED_IN)

    def _as_now(self, session: Session) -> Session:
        """The session with the rights that its person has now; PageRefused if the person was removed, or has another
        password now, which also ends the session; and while the file of the people cannot be read, which ends nothing.
        """
        if self.people is None or session.person is None:
            return session
        person = self.people.now(session.person)
        if person is None:
            self._sessions.pop(session.cookie, None)
            raise PageRefused(403, _NOT_LOGGED_IN)
        return session._replace(person=person)

    def check_change(self, request: Request) -> Session:
        """The session that asks for a change on the console's own page; PageRefused for any other request."""
        session = self.session_of(request)
        if not self.allows_changes(session):
            raise PageRefused(403, _ONLY_YOU_READ if self._allows_changes else _ONLY_READS)
        if "origin" not in request.headers:
            raise PageRefused(403, "a change comes from a page, and says from which")
        token = request.headers.get(CHANGE_HEADER, "")
        if not hmac.compare_digest(token.encode(), session.change_token.encode()):
            raise PageRefused(403, "a change carries the token of its session")
        if content_type_of(request) != JSON:
            raise PageRefused(415, "a change is sent as application/json")
        return session


def content_type_of(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
