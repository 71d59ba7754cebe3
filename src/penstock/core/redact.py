"""Secrets are masked before they reach a row, a log line or a page.

Three ways to know one: the name of the key it stands under, its own value (with its base64, URL and JSON forms), and
patterns such as the password in `scheme://user:password@host`. Streams are masked with hold-back, so that a secret
cut in two by a read, or by the end of a tail, does not slip through.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from penstock.core.errors import InvalidInput

MASK = "***"
MIN_SECRET = 6
"""Shorter values are not hunted for in text: masking every `1` or `abc` would leave nothing to read."""

LINE_HOLD = 4096
"""Patterns are matched within a line; this much of an unfinished line is held back until it ends."""

_SECRET_WORDS = "password|passwd|passphrase|pwd|secret|token|apikey|accesskey|privatekey|credential|credentials|authorization|cookie|dsn"
_SECRET_KEY = re.compile(rf"(?:^|[^a-z])(?:{_SECRET_WORDS})s?(?:$|[^a-z])|(?:{_SECRET_WORDS})s?$")
_JOINED = re.compile(r"(api|access|private|signing|encryption)[^a-z0-9]?(key)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_BUILT_IN = (
    # (words of which one must occur for the pattern to be tried at all, pattern); every repetition is bounded
    ((b"://",), rb"://[^\s/:@]{0,128}:(?P<secret>[^\s/@]{1,256})@"),
    ((b"bearer", b"basic"), rb"(?i:\b(?:bearer|basic)) {1,4}(?P<secret>[A-Za-z0-9._~+/=-]{6,4096})"),
    (
        (b"password", b"passwd", b"secret", b"token", b"api", b"authorization"),
        rb"(?i:(?:password|passwd|secret|token|api[_-]?key|authorization)[\w-]{0,32})[\"']?[ \t]{0,4}[=:][ \t]{0,4}[\"']?"
        rb"(?!(?i:bearer|basic)\b)(?!\d+\b)(?P<secret>[^\s\"',;&]{6,4096})",
    ),
)


def is_secret_name(name: str) -> bool:
    """Whether a key is named like a secret: `password`, `apiKey`, `github_token`, `Authorization` …

    >>> is_secret_name("dropboxToken"), is_secret_name("secretary"), is_secret_name("path")
    (True, False, False)
    """
    lowered = _JOINED.sub(r"\1\2", _CAMEL.sub("_", name).lower())
    return _SECRET_KEY.search(lowered) is not None


def secrets_in(value: Any) -> list[str]:
    """The texts that stand under keys named like secrets, at any depth."""
    return list(_secrets(value, False))


def _secrets(value: Any, hidden: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(item, hidden or is_secret_name(str(key)))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets(item, hidden)
    elif hidden and isinstance(value, str):
        yield value


def forms(secret: str) -> set[bytes]:
    """The ways a secret is likely to be spelled in output."""
    raw = secret.encode("utf-8", "surrogateescape")
    found = {raw, raw.strip()}
    found.update(text.encode() for text in (quote(raw, safe=""), quote_plus(raw), quote(raw)))
    found.update(
        json.dumps(secret, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "replace") for ascii_only in (True, False)
    )
    found.update(line.strip() for line in raw.splitlines())
    for offset in range(3):
        # Base64 works on groups of three bytes: what the neighbours cannot change is the middle
        encoded = base64.b64encode(b"\0" * offset + raw)
        middle = encoded[(0, 2, 3)[offset] : len(encoded) - (0, 3, 2)[(offset + len(raw)) % 3]]
        found.update((middle, middle.replace(b"+", b"-").replace(b"/", b"_")))
    return {form for form in found if len(form) >= MIN_SECRET}


class Redactor:
    """Masks secrets in JSON values, in texts, and in streams.

    >>> Redactor(["hunter2!"]).redact_text("the password is hunter2!")
    'the password is ***'
    >>> Redactor().redact_json({"user": "ann", "password": "x", "url": "https://ann:x@host/"})
    {'user': 'ann', 'password': '***', 'url': 'https://ann:***@host/'}
    """

    def __init__(self, secrets: Iterable[str] = (), patterns: Sequence[str] = ()) -> None:
        self.secrets = frozenset(secrets)
        self.patterns = tuple(patterns)
        found = {form for secret in self.secrets if len(secret) >= MIN_SECRET for form in forms(secret)}
        self.literals = tuple(sorted(found, key=lambda form: (-len(form), form)))
        self._any_literal = re.compile(b"|".join(map(re.escape, self.literals))) if self.literals else None
        self._built_in = [(words, re.compile(pattern)) for words, pattern in _BUILT_IN]
        self._given = [_compile(pattern) for pattern in patterns]

    def extended(self, secrets: Iterable[str] = (), patterns: Sequence[str] = ()) -> Redactor:
        """This one with more to mask; itself when there is nothing more."""
        more = frozenset(secrets) - self.secrets
        if not more and not patterns:
            return self
        return Redactor(self.secrets | more, (*self.patterns, *patterns))

    def redact_json(self, value: Any) -> Any:
        """A copy with everything under secret-like keys masked, and every text redacted."""
        if isinstance(value, Mapping):
            return {
                key: _masked(key, item) if isinstance(key, str) and is_secret_name(key) else self.redact_json(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.redact_json(item) for item in value]
        return self.redact_text(value) if isinstance(value, str) else value

    def redact_text(self, text: str) -> str:
        """The text with every secret masked."""
        data = text.encode("utf-8", "surrogatepass")
        masked = self.mask(data)
        return text if masked is data else masked.decode("utf-8", "surrogatepass")

    def stream(self) -> StreamRedactor:
        """A masker for one stream of bytes."""
        return StreamRedactor(self)

    def mask(self, data: bytes) -> bytes:
        """The bytes with every secret masked; the same object when there is none."""
        spans = self.spans(data)
        return _cover(data, [hidden for _match, hidden in spans]) if spans else data

    def spans(self, data: bytes) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """For each find, in order, where it matched and which part of that is to be hidden."""
        found = []
        if self._any_literal is not None and any(form in data for form in self.literals):
            found += [(match.span(), match.span()) for match in self._any_literal.finditer(data)]
        lowered: bytes | None = None
        for words, pattern in self._built_in:
            lowered = data.lower() if lowered is None else lowered
            if any(word in lowered for word in words):
                found += [(match.span(), match.span("secret")) for match in pattern.finditer(data)]
        for pattern in self._given:
            group = "secret" if "secret" in pattern.groupindex else 0
            found += [
                (match.span(), match.span(group)) for match in pattern.finditer(data) if match.end() > match.start()
            ]
        found.sort()
        return found


class StreamRedactor:
    """Masks secrets in a stream that arrives in pieces; holds back what might still become one."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""
        self._longest = max(map(len, redactor.literals), default=0)
        self._by_first: dict[int, list[bytes]] = {}
        for literal in redactor.literals:
            self._by_first.setdefault(literal[0], []).append(literal)

    def feed(self, data: bytes) -> bytes:
        """Take more of the stream; return what is safe to show by now."""
        data = self._held + data
        spans = self._redactor.spans(data)
        cut = min(self._literal_cut(data), self._line_cut(data))
        moved = True
        while moved:
            moved = False
            for (start, end), _hidden in spans:
                if start < cut < end or (start < cut and end == len(data) and end - start < LINE_HOLD):
                    cut, moved = start, True
        self._held = data[cut:]
        return _cover(data[:cut], [hidden for (_start, end), hidden in spans if end <= cut])

    def flush(self) -> bytes:
        """The rest, at the end of the stream."""
        held, self._held = self._held, b""
        return self._redactor.mask(held)

    def _literal_cut(self, data: bytes) -> int:
        """Where the longest end of the data starts that is the beginning of a secret."""
        for position in range(max(0, len(data) - self._longest + 1), len(data)):
            literals = self._by_first.get(data[position])
            if literals and any(literal.startswith(data[position:]) for literal in literals):
                return position
        return len(data)

    def _line_cut(self, data: bytes) -> int:
        newline = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        return max(newline, len(data) - LINE_HOLD)


def _compile(pattern: str) -> re.Pattern[bytes]:
    try:
        return re.compile(pattern.encode())
    except re.error as error:
        raise InvalidInput(f"The secret pattern {pattern!r} is not a regular expression: {error}.") from error


def _masked(name: str, value: Any) -> Any:
    # `max_tokens: 512` counts tokens; it is none
    counts = isinstance(value, int | float) and "token" in name.lower()
    return value if value is None or counts else MASK


def _cover(data: bytes, hidden: Sequence[tuple[int, int]]) -> bytes:
    if not hidden:
        return data
    parts: list[bytes] = []
    at = 0
    for start, end in sorted(hidden):
        if end <= at:
            continue
        if start >= at:
            parts += (data[at:start], MASK.encode())
        at = end
    parts.append(data[at:])
    return b"".join(parts)
