"""Elements of a page: from the words of a spec to Playwright, and to the words of a message."""

from typing import Any

from playwright.sync_api import Locator, Page

_KINDS = ("role", "label", "text", "placeholder", "alt", "title", "test_id", "css")


def find(page: Page, locator: dict[str, Any]) -> Locator:
    """Return the Playwright locator of a spec's locator."""
    exact = locator.get("exact")
    if "role" in locator:
        found = page.get_by_role(locator["role"], name=locator.get("name"), exact=exact)
    elif "label" in locator:
        found = page.get_by_label(locator["label"], exact=exact)
    elif "text" in locator:
        found = page.get_by_text(locator["text"], exact=exact)
    elif "placeholder" in locator:
        found = page.get_by_placeholder(locator["placeholder"], exact=exact)
    elif "alt" in locator:
        found = page.get_by_alt_text(locator["alt"], exact=exact)
    elif "title" in locator:
        found = page.get_by_title(locator["title"], exact=exact)
    elif "test_id" in locator:
        found = page.get_by_test_id(locator["test_id"])
    else:
        found = page.locator("css=" + locator["css"])
    return found.nth(locator["nth"]) if "nth" in locator else found


def describe(locator: dict[str, Any]) -> str:
    """Return a locator as a person would say it: button “Sign in”, the field labelled “Email”."""
    kind = next(kind for kind in _KINDS if kind in locator)
    value = locator[kind]
    words = {
        "role": f"the {value} “{locator['name']}”" if "name" in locator else f"the {value}",
        "label": f"the field labelled “{value}”",
        "text": f"the text “{value}”",
        "placeholder": f"the field with the placeholder “{value}”",
        "alt": f"the image “{value}”",
        "title": f"the element with the tooltip “{value}”",
        "test_id": f"the element with the test id “{value}”",
        "css": f"the element {value}",
    }
    return words[kind] + (f" (number {locator['nth']})" if "nth" in locator else "")
