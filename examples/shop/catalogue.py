"""What the shop sells."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Product:
    """One article; the price is in cents, the colour paints its picture."""

    id: int
    slug: str
    name: str
    name_de: str
    price: int
    colour: str
    text: str
    text_de: str


PRODUCTS = (
    Product(
        1, "teapot", "Teapot", "Teekanne", 3450, "#b45309", "Cast iron, holds 0.8 litres.", "Gusseisen, 0,8 Liter."
    ),
    Product(
        2, "lamp", "Desk lamp", "Schreibtischlampe", 5900, "#0f766e", "Warm light, dimmable.", "Warmes Licht, dimmbar."
    ),
    Product(3, "notebook", "Notebook", "Notizbuch", 1290, "#4338ca", "Dotted, 192 pages.", "Gepunktet, 192 Seiten."),
    Product(4, "backpack", "Backpack", "Rucksack", 8900, "#be123c", "Waterproof, 22 litres.", "Wasserdicht, 22 Liter."),
    Product(5, "mug", "Enamel mug", "Emaillebecher", 990, "#0369a1", "For the camp fire.", "Für das Lagerfeuer."),
    Product(6, "blanket", "Wool blanket", "Wolldecke", 7400, "#6d28d9", "Soft lambswool.", "Weiche Lammwolle."),
)


def find(slug: str) -> Product | None:
    """Return the product with this name in its address."""
    return next((product for product in PRODUCTS if product.slug == slug), None)


def search(words: str) -> list[Product]:
    """Return the products whose English or German name contains the words."""
    wanted = words.strip().lower()
    return [product for product in PRODUCTS if wanted in product.name.lower() or wanted in product.name_de.lower()]


def price(cents: int, language: str) -> str:
    """Return a price the way the language writes it."""
    euros = f"{cents // 100}.{cents % 100:02d}"
    return f"{euros.replace('.', ',')} €" if language == "de" else f"€{euros}"
