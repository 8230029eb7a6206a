"""What a hostile submitter or container writes where a page shows it, and secrets that no page may show."""

from typing import Final

MARK: Final = "data-hostile"
"""An attribute of the elements that hostile text would make if a page took it for HTML."""
ELEMENT: Final = f"<b {MARK}>bold</b>"
SCRIPT: Final = "</textarea></title><script>window.hostile = 1</script><img src=x onerror='window.hostile = 1'>"
ATTRIBUTE: Final = f"\" onmouseover='window.hostile = 1' {MARK}=\"' {MARK}='"
OVERRIDE: Final = "\u202e"
RIGHT_TO_LEFT: Final = f"{OVERRIDE}txt.exe\u2066 שלום مرحبا"
EMOJI: Final = "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈"
ENTITY: Final = "&lt;b&gt; &amp;amp; {{ 7 * 7 }} ${7 * 7} {% raw %} %s"
NOTE: Final = f"{ELEMENT} {RIGHT_TO_LEFT} {EMOJI} {ENTITY}"[:200]
BATCH: Final = f"{ELEMENT}{ATTRIBUTE}/?a=b&c#d {EMOJI}"[:200]
ERROR: Final = "\n".join((SCRIPT, ELEMENT, RIGHT_TO_LEFT, EMOJI, ENTITY, "\x1b[31mred\x1b[0m\ttab\r\x07"))
UNBROKEN: Final = "x" * 8192
"""As long as an error may be, and without a blank."""
LABELS: Final = {ELEMENT: SCRIPT, f"{RIGHT_TO_LEFT} name"[:63]: EMOJI, "y" * 63: "z" * 200}
LITERAL: Final = (ELEMENT, SCRIPT.partition("<img")[0])
"""Parts of the above that a page shows as they are."""
SECRET: Final = "planted-secret-b7e1"
"""Part of every value that is planted."""
