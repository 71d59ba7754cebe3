"""Text from jobs and tenants, made safe to show on a terminal.

A terminal obeys what it is sent: an escape sequence can clear the screen, hide text, change the clipboard or turn a link
into something else, and bidirectional controls can show text in another order than it has. So control characters are
shown as escapes, except the newline and the tab.
"""

from __future__ import annotations

import re

# C0 without \n and \t; DEL and C1; the bidirectional controls; line and paragraph separator; the byte order mark.
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_CONTROL_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def printable(text: str) -> str:
    r"""Return the text with every control character as an escape. A carriage return before a newline is dropped.

    >>> printable("\x1b[2Jhello\r\n")
    '\\x1b[2Jhello\n'
    """
    return _CONTROL.sub(_escaped, text.replace("\r\n", "\n"))


def printable_json(text: str) -> str:
    """Return JSON text with the control characters that JSON itself lets through as escapes. It means the same."""
    return _CONTROL_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
