"""A real browser without a window: opens a page, does what a user does, reads it."""

import html
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
from typing import Any

BINARY = shutil.which("chromium") or shutil.which("google-chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
    *("--no-first-run", "--disable-background-networking", "--disable-sync"),
    *("--disable-component-update", "--hide-scrollbars"),
    "--host-resolver-rules=MAP * ~NOTFOUND",  # a page must hold all it needs
)
_COMPLAINTS = """<head><script>
window.complaints = [];
const complain = (event) => complaints.push(String(event.message ?? event.blockedURI));
addEventListener("error", complain);
addEventListener("securitypolicyviolation", complain);
</script>"""
# After the page's own start: both wait for `load`, and the page was there first.
_USER = """<script>
addEventListener("load", () => {
  const answers = [];
  const $$ = (query) => document.querySelector(query);
  const pixels = (id) => {
    const canvas = document.getElementById(id), { height, width } = canvas;
    const image = canvas.getContext("2d").getImageData(0, 0, width, height);
    return { height, width, data: [...image.data] };
  };
  const slide = (value) => {
    $$("#position").value = value;
    $$("#position").dispatchEvent(new Event("input", { bubbles: true }));
  };
  const press = (code, key, shiftKey = false) => {
    const how = { code, key, shiftKey, bubbles: true };
    document.body.dispatchEvent(new KeyboardEvent("keydown", how));
  };
  try {
    for (const step of [STEPS]) answers.push(step() ?? null);
  } catch (error) { complaints.push(String(error.stack)); }
  const page = top.document, out = page.createElement("pre");
  out.id = "answers";
  out.textContent = JSON.stringify({ answers, complaints });
  page.body.replaceChildren(out);
});
</script></body>"""


def ask(
    page: pathlib.Path, steps: list[str], *, place: str = "", frame: int | None = None
) -> list[Any]:
    """What JavaScript expressions return in the page, one after another.

    They may use `$$(selector)`, `pixels(canvas id)`, `slide(position)` and
    `press(code, key, shift)`. Fails at any error or blocked address in the page.

    Args:
      page: The file to open; a copy of it is changed.
      steps: Expressions.
      place: What follows `#` in the address.
      frame: Shows the page in a frame of this width, as notebooks do; windows cannot
        be as narrow as a phone.
    """
    program = ", ".join(f"() => ({step})" for step in steps)
    text = page.read_text(encoding="utf-8").replace("<head>", _COMPLAINTS, 1)
    head, tail = text.rsplit("</body>", 1)
    text = head + _USER.replace("STEPS", program) + tail
    if frame is not None:
        size = f'width="{frame}" height="800" style="border: 0"'
        text = f'<body><iframe {size} srcdoc="{html.escape(text)}"></iframe></body>'
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "page.html"
        copy.write_text(text, encoding="utf-8")
        dumped = _run(folder, "--dump-dom", f"{copy.as_uri()}#{place}")
    found = re.search(r'<pre id="answers">(.*?)</pre>', dumped, re.DOTALL)
    assert found, f"the page never loaded: {dumped[:500]}"
    result: dict[str, Any] = json.loads(html.unescape(found[1]))
    assert not result["complaints"], result["complaints"]
    return result["answers"]


def _run(folder: str, *args: str) -> str:
    command = [str(BINARY), *_FLAGS, f"--user-data-dir={folder}/profile", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
