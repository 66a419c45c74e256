"""A person with a browser, as far as HTTP can tell: logs into the admin and opens the evidence of a job."""

import hashlib
import re
from html import unescape

import httpx2

CSRF = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
OPEN = re.compile(r'href="(/artifacts/([0-9a-f-]{36})/open)"')


class VisitError(Exception):
    """A page did not answer as a person needs it; the text says which."""


class Visitor:
    """One browser session at the admin of `address`."""

    def __init__(self, address: str) -> None:
        self._address = address
        # No proxy of the environment may stand between the demo and its own server.
        self._session = httpx2.Client(base_url=address, trust_env=False, timeout=30)

    def log_in(self, name: str, password: str) -> None:
        """Send the login form. Raises VisitError."""
        page = self._page("/admin/login/")
        token = CSRF.search(page)
        if token is None:
            raise VisitError("The login page has no form.")
        form = {"username": name, "password": password, "csrfmiddlewaretoken": token[1], "next": "/admin/"}
        answer = self._session.post("/admin/login/", data=form, headers={"Referer": f"{self._address}/admin/login/"})
        if answer.status_code != 302:
            raise VisitError(f"The login was answered with {answer.status_code}.")

    def evidence(self, page: str) -> dict[str, str]:
        """Return the SHA-256 of every file that the page links to, by the file's id. Raises VisitError."""
        links = {artifact: unescape(link) for link, artifact in OPEN.findall(self._page(page))}
        return {artifact: self._digest(link) for artifact, link in links.items()}

    def _page(self, path: str) -> str:
        answer = self._session.get(path)
        if answer.status_code != 200:
            raise VisitError(f"{path} was answered with {answer.status_code}.")
        return answer.text

    def _digest(self, link: str) -> str:
        answer = self._session.get(link)
        if answer.status_code != 302:
            raise VisitError(f"{link} was answered with {answer.status_code}, not with a redirect.")
        # The signed address needs no session: it is what a storage of its own would be asked for.
        target = str(answer.url.join(answer.headers["Location"]))
        file = httpx2.get(target, trust_env=False, timeout=30)
        if file.status_code != 200:
            raise VisitError(f"The signed address of {link} was answered with {file.status_code}.")
        return hashlib.sha256(file.content).hexdigest()
