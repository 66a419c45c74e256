"""The shop's HTTP server."""

import json
import secrets
import threading
from dataclasses import dataclass, field
from email import message_from_bytes
from http import HTTPStatus
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from examples.shop import pages
from examples.shop.catalogue import PRODUCTS, Product, find, price, search

VERSION = "1.2.3"
_MAX_BODY = 1024 * 1024
_FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<rect width="16" height="16" rx="4" fill="#0f766e"/><path d="M8 3l5 5-5 5-5-5z" fill="#fff"/></svg>'
)


@dataclass
class Visitor:
    """What the shop remembers of one browser."""

    email: str = ""
    language: str = "en"
    cart: list[str] = field(default_factory=list)


class ShopServer(ThreadingHTTPServer):
    """Serves until closed; accepts every password but `wrong`."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, _Handler)
        self.visitors: dict[str, Visitor] = {}
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ShopServer
    timeout = 15

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (named by the base class)
        """Stay quiet: the shop runs beside tests and the demo."""

    def do_GET(self) -> None:
        self._visitor()
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if query.get("lang") in pages.WORDS:
            self.visitor.language = query["lang"]
        routes = {
            "/": lambda: self._page("UAT demo", pages.home(self.visitor.language)),
            "/welcome": self._welcome,
            "/products": lambda: self._products(query.get("q", "")),
            "/cart": lambda: self._page("Cart", pages.cart(self.visitor.cart, self.visitor.language)),
            "/contact": lambda: self._page("Contact", pages.contact(self.visitor.language)),
            "/old-shop": lambda: self._redirect("/products", HTTPStatus.MOVED_PERMANENTLY),
            "/leave": lambda: self._redirect("http://elsewhere.example/"),
            "/catalogue.csv": self._download,
            "/style.css": lambda: self._send(pages.STYLE, "text/css"),
            "/shop.js": lambda: self._send(pages.SCRIPT, "text/javascript"),
            "/favicon.svg": lambda: self._send(_FAVICON, "image/svg+xml"),
            "/api/health": lambda: self._json({"status": "ok", "version": VERSION}),
            "/api/products": lambda: self._json({"items": [_api(p) for p in PRODUCTS], "total": len(PRODUCTS)}),
            "/api/me": self._me,
        }
        if url.path.startswith("/api/products/"):
            self._api_product(url.path.rpartition("/")[2])
        elif route := routes.get(url.path):
            route()
        else:
            self._missing()

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        body = self._body()
        if body is None:
            return
        self._visitor()
        routes = {"/sign-in": self._sign_in, "/cart": self._add, "/contact": self._contact, "/api/orders": self._order}
        path = urlsplit(self.path).path
        if path == "/pay":
            self.visitor.cart.clear()
            self._page("Paid", pages.notice("Thank you", "Your order is on its way."))
        elif route := routes.get(path):
            route(body)
        else:
            self._missing()

    # --- pages --------------------------------------------------------------------------------------------------
    def _welcome(self) -> None:
        if self.visitor.email:
            self._page("Welcome", pages.welcome(self.visitor.email))
        else:
            self._redirect("/")

    def _products(self, words: str) -> None:
        self._page("Products", pages.product_list(search(words), self.visitor.language, words))

    def _sign_in(self, body: bytes) -> None:
        form = _form(body)
        if not form.get("email") or form.get("password", "wrong") == "wrong":
            text = "E-Mail oder Passwort ist falsch" if self.visitor.language == "de" else "Email or password is wrong"
            self._page("UAT demo", pages.home(self.visitor.language, text))
            return
        self.visitor.email = form["email"]
        self._redirect("/welcome")

    def _add(self, body: bytes) -> None:
        product = find(_form(body).get("slug", ""))
        if product is None:
            self._missing()
            return
        self.visitor.cart.append(product.slug)
        self._redirect("/cart")

    def _contact(self, body: bytes) -> None:
        head = f"Content-Type: {self.headers.get('Content-Type', '')}\r\n\r\n".encode()
        fields: dict[str, str] = {}
        file_name, size = "", 0
        for part in message_from_bytes(head + body).walk():
            name = part.get_param("name", header="content-disposition")
            content = part.get_payload(decode=True)
            if not isinstance(name, str) or not isinstance(content, bytes):
                continue
            if name == "file":
                file_name, size = part.get_filename() or "", len(content)
            else:
                fields[name] = content.decode("utf-8", "replace")
        self._page("Thank you", pages.sent(fields.get("topic", ""), fields.get("message", ""), file_name, size))

    def _download(self) -> None:
        rows = "".join(f"{p.id},{p.name},{p.price / 100:.2f}\r\n" for p in PRODUCTS)
        disposition = {"Content-Disposition": 'attachment; filename="catalogue.csv"'}
        self._send("id,name,price\r\n" + rows, "text/csv", headers=disposition)

    def _missing(self) -> None:
        text = "Not found" if self.path.startswith("/api/") else "This page does not exist."
        if self.path.startswith("/api/"):
            self._json({"error": text}, HTTPStatus.NOT_FOUND)
        else:
            self._page("Not found", pages.notice("Not found", text), HTTPStatus.NOT_FOUND)

    # --- API ----------------------------------------------------------------------------------------------------
    def _api_product(self, number: str) -> None:
        product = next((p for p in PRODUCTS if str(p.id) == number), None)
        if product is None:
            self._json({"error": "Not found"}, HTTPStatus.NOT_FOUND)
        else:
            self._json(_api(product))

    def _order(self, body: bytes) -> None:
        try:
            order = json.loads(body)
            product = find(order["product"])
            quantity = int(order["quantity"])
        except (ValueError, TypeError, KeyError):
            self._json({"error": "product and quantity are required"}, HTTPStatus.BAD_REQUEST)
            return
        if product is None or not 1 <= quantity <= 99:
            self._json({"error": "there is no such product or quantity"}, HTTPStatus.UNPROCESSABLE_ENTITY)
            return
        marker = self.headers.get("X-Test-Marker")
        answer = {"reference": f"ORD-{secrets.token_hex(4)}", "total": product.price * quantity, "test_marker": marker}
        self._json(answer, HTTPStatus.CREATED)

    def _me(self) -> None:
        if self.visitor.email:
            self._json({"email": self.visitor.email, "items": len(self.visitor.cart)})
        else:
            self._json({"error": "sign in first"}, HTTPStatus.UNAUTHORIZED)

    # --- HTTP ---------------------------------------------------------------------------------------------------
    def _visitor(self) -> None:
        cookies = SimpleCookie(self.headers.get("Cookie", ""))
        known = cookies["visit"].value if "visit" in cookies else ""
        with self.server.lock:
            self.new_cookie = "" if known in self.server.visitors else secrets.token_urlsafe(16)
            self.visitor = self.server.visitors.setdefault(self.new_cookie or known, Visitor())

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MAX_BODY:
            self.close_connection = True
            self.send_error(HTTPStatus.LENGTH_REQUIRED if not length else HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return None
        return self.rfile.read(int(length))

    def _page(self, title: str, body: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        html = pages.page(title, body, self.visitor.language, len(self.visitor.cart))
        self._send(html, "text/html", status, {"Content-Language": self.visitor.language})

    def _json(self, value: dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(value), "application/json", status)

    def _redirect(self, location: str, status: HTTPStatus = HTTPStatus.SEE_OTHER) -> None:
        self._send("", "text/plain", status, {"Location": location})

    def _send(
        self, text: str, kind: str, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None
    ) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if self.new_cookie:
            self.send_header("Set-Cookie", f"visit={self.new_cookie}; Path=/; HttpOnly; SameSite=Lax")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _api(product: Product) -> dict[str, Any]:
    return {"id": product.id, "slug": product.slug, "name": product.name, "price": price(product.price, "en")}


def _form(body: bytes) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
