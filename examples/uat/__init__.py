"""UAT specs that test the demo shop, with the verdict each of them is meant to get."""

import json
from pathlib import Path
from typing import Any, Final

EXPECTED: Final = {
    "signin-smoke": "pass",
    "api-contract": "risk",
    "checkout-regression": "fail",
    "product-search": "pass",
    "contact-form": "pass",
    "redirects": "pass",
    "download": "pass",
    "performance-budget": "pass",
    "localisation": "pass",
    "order-api": "pass",
}


def load(name: str, base_url: str) -> dict[str, Any]:
    """Return one example with the target's address replaced by where the shop runs now."""
    path = Path(__file__).with_name(f"{name}.json")
    spec: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    spec["target"]["base_url"] = base_url
    return spec
