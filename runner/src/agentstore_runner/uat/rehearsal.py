"""`python -m agentstore_runner.uat.rehearsal BROWSER`: start the browser as a job would, open a page, and end it."""

import sys

from playwright.sync_api import Error, sync_playwright

from agentstore_runner.uat import chromium
from agentstore_runner.uat.browser import LAUNCH_MS, first_line


def main() -> int:
    """Print the version of a browser that works, or why it does not on standard error."""
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=sys.argv[1], args=chromium.flags(), timeout=LAUNCH_MS)
            page = browser.new_page()
            page.set_content("<title>well</title>")
            print(f"Chromium {browser.version}" if page.title() == "well" else "")
            browser.close()
    except Error as error:
        print(first_line(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
