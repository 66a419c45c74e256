"""The pages of the shop as HTML."""

from collections.abc import Iterable
from html import escape
from pathlib import Path

from examples.shop.catalogue import PRODUCTS, Product, price

_FOLDER = Path(__file__).parent
STYLE = (_FOLDER / "shop.css").read_text(encoding="utf-8")
SCRIPT = (_FOLDER / "shop.js").read_text(encoding="utf-8")
WORDS = {
    "en": {"products": "Products", "cart": "Cart", "contact": "Contact", "other": "Deutsch", "sign_in": "Sign in"},
    "de": {
        "products": "Produkte",
        "cart": "Warenkorb",
        "contact": "Kontakt",
        "other": "English",
        "sign_in": "Anmelden",
    },
}


def page(title: str, body: str, language: str = "en", cart: int = 0) -> str:
    """Return a whole page with the shop's header and footer around the body."""
    words = WORDS[language]
    other = "/?lang=en" if language == "de" else "/?lang=de"
    count = f' (<span data-testid="cart-count">{cart}</span>)'
    return f"""<!doctype html>
<html lang="{language}"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/favicon.svg" type="image/svg+xml"><link rel="stylesheet" href="/style.css"></head>
<body><header><nav aria-label="Main"><a class="brand" href="/"><span>◆</span> Harbour Goods</a>
<a href="/products">{words["products"]}</a><a href="/cart">{words["cart"]}{count}</a>
<a href="/contact">{words["contact"]}</a>
<a href="{other}">{words["other"]}</a></nav></header>
<main>{body}</main><footer>A demo shop. Nothing here is for sale.</footer>
<script src="/shop.js"></script></body></html>"""


def home(language: str, error: str = "") -> str:
    """Return the sign-in form with its heading."""
    german = language == "de"
    notice = f'<p class="notice bad" role="alert">{escape(error)}</p>' if error else ""
    lead = (
        "Schöne Dinge für jeden Tag. Bitte melden Sie sich an."
        if german
        else "Good things for every day. Please sign in."
    )
    return f"""<h1 data-testid="heading">{"Laden" if german else "Shop"}</h1><p class="lead">{lead}</p>{notice}
<form class="card narrow" method="post" action="/sign-in">
<label for="email">{"E-Mail" if german else "Email"}</label>
<input id="email" name="email" type="email" required autocomplete="username">
<label for="pw">{"Passwort" if german else "Password"}</label>
<input id="pw" name="password" type="password" required autocomplete="current-password">
<button type="submit">{WORDS[language]["sign_in"]}</button></form>"""


def welcome(email: str) -> str:
    """Return the page after signing in; a part of it appears later."""
    return f"""<h1>Your account</h1><p id="out" class="notice">Welcome {escape(email)}</p>
<div data-late="Your last order has been shipped."></div>
<p><a class="button" href="/products">Browse products</a></p>"""


def product_list(products: Iterable[Product], language: str, words: str) -> str:
    """Return the search form and the products that were found."""
    german = language == "de"
    cards = "".join(_card(product, language) for product in products)
    empty = f'<p class="notice" role="status">{"Nichts gefunden" if german else "Nothing found"}</p>'
    return f"""<h1>{WORDS[language]["products"]}</h1>
<form method="get" action="/products" role="search" class="narrow">
<label for="q">{"Suche" if german else "Search"}</label>
<input id="q" name="q" value="{escape(words)}" placeholder="{"Suchen …" if german else "Search products"}"></form><br>
<div class="grid" data-testid="products">{cards}</div>{"" if cards else empty}"""


def _card(product: Product, language: str) -> str:
    german = language == "de"
    name, text = (product.name_de, product.text_de) if german else (product.name, product.text)
    button = "In den Warenkorb" if german else "Add to cart"
    return f"""<article class="card product"><svg viewBox="0 0 240 100" role="img" aria-label="{escape(name)}"
preserveAspectRatio="xMidYMid slice"><rect width="240" height="100" fill="{product.colour}"/>
<circle cx="190" cy="20" r="60" fill="#fff" opacity=".14"/>
<circle cx="60" cy="90" r="46" fill="#fff" opacity=".2"/></svg>
<div><h2>{escape(name)}</h2><p>{escape(text)}</p><span class="price">{price(product.price, language)}</span>
<form method="post" action="/cart"><input type="hidden" name="slug" value="{product.slug}">
<button type="submit" aria-label="{button}: {escape(name)}">{button}</button></form></div></article>"""


def cart(slugs: list[str], language: str) -> str:
    """Return what is in the cart, with the way to pay."""
    german = language == "de"
    chosen = [product for product in PRODUCTS if product.slug in slugs]
    rows = "".join(
        f'<tr data-testid="line"><td>{escape(p.name_de if german else p.name)}</td><td>{slugs.count(p.slug)}</td>'
        f"<td>{price(p.price * slugs.count(p.slug), language)}</td></tr>"
        for p in chosen
    )
    total = price(sum(p.price * slugs.count(p.slug) for p in chosen), language)
    if not rows:
        return notice(WORDS[language]["cart"], "Ihr Warenkorb ist leer" if german else "Your cart is empty")
    terms = "Ich stimme den Bedingungen zu" if german else "I accept the terms"
    return f"""<h1>{WORDS[language]["cart"]}</h1><div class="card"><table>{rows}
<tr><th>{"Summe" if german else "Total"}</th><th></th><th data-testid="total">{total}</th></tr></table>
<form method="post" action="/pay"><label><input type="checkbox" id="terms"> {terms}</label>
<button type="submit" data-needs="#terms">{"Jetzt bezahlen" if german else "Pay now"}</button></form></div>"""


def contact(language: str) -> str:
    """Return the contact form with a file to attach."""
    german = language == "de"
    return f"""<h1>{WORDS[language]["contact"]}</h1>
<form class="card narrow" method="post" action="/contact" enctype="multipart/form-data">
<label for="topic">{"Thema" if german else "Topic"}</label>
<select id="topic" name="topic">
<option value="order">{"Bestellung" if german else "An order"}</option>
<option value="return">{"Rückgabe" if german else "A return"}</option></select>
<label for="message">{"Nachricht" if german else "Message"}</label>
<textarea id="message" name="message" rows="4" required></textarea>
<label for="file">{"Anhang" if german else "Attachment"}</label><input id="file" name="file" type="file">
<button type="submit">{"Senden" if german else "Send"}</button></form>"""


def sent(topic: str, message: str, file_name: str, size: int) -> str:
    """Return the confirmation of a message."""
    attachment = f"{escape(file_name)}, {size} bytes" if file_name else "no attachment"
    return f"""<h1>Thank you</h1><p class="notice" role="status">We received your message.</p><dl class="card">
<dt>Topic</dt><dd data-testid="topic">{escape(topic)}</dd>
<dt>Message</dt><dd data-testid="message">{escape(message)}</dd>
<dt>Attachment</dt><dd data-testid="attachment">{attachment}</dd></dl>"""


def notice(title: str, text: str) -> str:
    """Return a page with one sentence."""
    return f'<h1>{escape(title)}</h1><p class="notice" role="status">{escape(text)}</p>'
