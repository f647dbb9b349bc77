"""Take a picture of the page of a running `seq2seq serve`, with a translation and its attention."""

import argparse
import shutil

from playwright.sync_api import expect, sync_playwright


def main() -> None:
    """Drive Chromium, the system's if there is one, else Playwright's own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:5000", help="address of the page")
    parser.add_argument("--text", required=True, help="text to translate")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.png")
    arguments = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page(viewport={"width": 1180, "height": 800})
        page.goto(arguments.url)
        page.locator("#source").fill(arguments.text)
        page.keyboard.press("Control+Enter")
        page.locator("#attention summary").click()
        expect(page.locator("#map")).to_be_visible()
        page.locator("#columns button").nth(2).hover()
        page.screenshot(path=arguments.output, full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
