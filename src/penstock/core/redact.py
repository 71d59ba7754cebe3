"""Secrets are masked before they reach a log line, a view or a page. Params and results are stored as they were given.

Four ways to know one: the name of the key it stands under, the marks of its schema (`marks.py`), its own value (in the forms
that `forms` lists), and patterns: the password in `scheme://user:password@host`, tokens with a known prefix, private keys. Streams are masked with hold-back, so that a secret
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
from penstock.core.outside import outside_if_large

MASK = "***"
MIN_SECRET = 6
"""Shorter values are not hunted for in text: masking every `1` or `abc` would leave nothing to read."""

MIN_WHOLE = 4
"""A whole JSON value that equals a secret is masked from this length on."""

MIN_NUMBER = 100_000
"""Smaller numbers are not hunted for either."""

LINE_HOLD = 4096
"""Patterns are matched within a line; this much of an unfinished line is held back until it ends."""

_ANYWHERE = "password|passphrase|passcode|apikey|accesskey|secretkey|privatekey|signingkey|encryptionkey|sshkey"
"""Words that mean a secret wherever they stand in a name, also run together with others."""

_WORDS = "passwd|pwd|pw|secret|token|credential|authorization|cookie|dsn|bearer|jwt|otp|sessionid|connectionstring|databaseurl"
"""Words that mean a secret where they stand by themselves, or at the end of a name."""

_LAST_WORDS = "pass|pin|pat|auth|signature"
"""Words that mean a secret only as the last word of a name: `db_pass`, but not `pass_count`."""

_WHOLE = {"pw", "otp", "jwt", "dsn"}
_ENDS = "|".join(word for word in _WORDS.split("|") if word not in _WHOLE)
_SECRET_KEY = re.compile(
    rf"{_ANYWHERE}|(?:^|[^a-z])(?:{_WORDS})s?(?:$|[^a-z])|(?:{_ENDS})s?$|(?:^|[^a-z])(?:{_LAST_WORDS})$"
)
_JOINED = re.compile(
    r"(api|access|secret|private|signing|encryption|ssh)[^a-z0-9]?(key)"
    r"|(pass)[^a-z0-9]?(word|phrase|code)|(session)[^a-z0-9]?(id)|(connection)[^a-z0-9]?(string)|(database)[^a-z0-9]?(url)"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAMES, _VALUES = ("name", "key", "header"), ("value", "val")
"""How a pair is written as an object: `{"name": "PASSWORD", "value": "…"}`."""

MAX_PEM = 16_384
_PEM_END = re.compile(rb"-----END [A-Z0-9 ]{0,48}-----")

_BUILT_IN = (
    # (words of which one must occur for the pattern to be tried at all, pattern); every repetition is bounded
    ((b"://",), rb"://[^\s/:@]{0,128}:(?P<secret>[^\s/@]{1,256})@"),
    ((b"bearer", b"basic"), rb"(?i:\b(?:bearer|basic)) {1,4}(?P<secret>[A-Za-z0-9._~+/=-]{6,4096})"),
    (
        (b"password", b"passwd", b"secret", b"token", b"api", b"authorization"),
        rb"(?i:(?:password|passwd|secret|token|api[_-]?key|authorization)[\w-]{0,32})[\"']?[ \t]{0,4}[=:][ \t]{0,4}[\"']?"
        rb"(?!(?i:bearer|basic)\b)(?!\d+\b)(?P<secret>[^\s\"',;&]{6,4096})",
    ),
    # Values that tell by themselves what they are: our own tokens, and those that scanners look for.
    (
        (
            b"pst_",
            b"ghp_",
            b"gho_",
            b"ghs_",
            b"ghu_",
            b"ghr_",
            b"github_pat_",
            b"glpat-",
            b"xox",
            b"sk_live_",
            b"rk_live_",
        ),
        rb"\b(?P<secret>(?:pst_|gh[opsur]_|github_pat_|glpat-|xox[abeoprs]-|[sr]k_live_)[A-Za-z0-9_-]{10,255})",
    ),
    ((b"akia", b"asia"), rb"\b(?P<secret>A(?:KI|SI)A[0-9A-Z]{16})\b"),
    ((b"aiza",), rb"\b(?P<secret>AIza[0-9A-Za-z_-]{35})"),
    ((b"eyj",), rb"\b(?P<secret>eyJ[A-Za-z0-9_-]{8,2048}\.eyJ[A-Za-z0-9_-]{4,4096}\.[A-Za-z0-9_-]{0,1024})"),
    ((b"hooks.slack.com",), rb"hooks\.slack\.com/(?P<secret>[a-z]+/[A-Za-z0-9/_-]{8,255})"),
    (
        (b"-----begin ",),
        rb"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----(?P<secret>[^-]{1,16384})(?:-----END [A-Z ]{0,32}PRIVATE KEY-----|$)",
    ),
)


def is_secret_name(name: str) -> bool:
    """Whether a key is named like a secret: `password`, `apiKey`, `github_token`, `Authorization` …

    >>> is_secret_name("dropboxToken"), is_secret_name("secretary"), is_secret_name("path")
    (True, False, False)
    """
    lowered = _JOINED.sub(lambda found: "".join(filter(None, found.groups())), _CAMEL.sub("_", name).lower())
    return _SECRET_KEY.search(lowered) is not None


def secrets_in(value: Any) -> list[str]:
    """The texts that stand under keys named like secrets, at any depth."""
    return outside_if_large("secrets", value, lambda: list(_secrets(value, False)))


def _secrets(value: Any, hidden: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        paired = _is_secret_pair(value)
        for key, item in value.items():
            named = is_secret_name(str(key)) and _masked(str(key), item) is not item
            yield from _secrets(item, hidden or named or (paired and key in _VALUES))
    elif isinstance(value, list | tuple):
        paired = _is_secret_tuple(value)
        for index, item in enumerate(value):
            yield from _secrets(item, hidden or (paired and index == 1))
    elif hidden and isinstance(value, str):
        yield value
    elif hidden and isinstance(value, int) and not isinstance(value, bool) and abs(value) >= MIN_NUMBER:
        yield str(value)


def _is_secret_pair(value: Mapping[Any, Any]) -> bool:
    return any(isinstance(name := value.get(key), str) and is_secret_name(name) for key in _NAMES)


def _is_secret_tuple(value: Sequence[Any]) -> bool:
    """Whether this is a pair like `["Authorization", "…"]`, as lists of headers hold."""
    return len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], str) and is_secret_name(value[0])


def forms(secret: str) -> set[bytes]:
    """The ways a secret is likely to be spelled in output."""
    raw = secret.encode("utf-8", "surrogateescape")
    found = {raw, raw.strip()}
    found.update(text.encode() for text in (quote(raw, safe=""), quote_plus(raw), quote(raw)))
    found.update(
        json.dumps(secret, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "replace") for ascii_only in (True, False)
    )
    found.update(line.strip() for line in raw.splitlines())
    found.update((raw.hex().encode(), raw.hex().upper().encode(), base64.b32encode(raw).rstrip(b"=")))
    found.update((raw.upper(), raw.lower(), raw[::-1]))
    if len(secret) >= MIN_SECRET:
        found.update(sign.join(secret).encode("utf-8", "surrogateescape") for sign in (" ", "\0", "\ufffd"))
        found.update(secret.encode(code, "replace") for code in ("utf-16-le", "utf-16-be"))
        found.add(base64.b64encode(base64.b64encode(raw)).rstrip(b"="))
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
        return outside_if_large(("redact", self.secrets, self.patterns), value, lambda: self._redact_json(value))

    def _redact_json(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            paired = _is_secret_pair(value)
            return {
                key: _masked(key, item)
                if (isinstance(key, str) and is_secret_name(key)) or (paired and key in _VALUES)
                else self._redact_json(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            if _is_secret_tuple(value):
                return [value[0], MASK]
            return [self._redact_json(item) for item in value]
        if isinstance(value, str):
            # A value that is the secret and nothing else is known by that, however short it is
            return MASK if value in self.secrets and len(value) >= MIN_WHOLE else self.redact_text(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) >= MIN_NUMBER:
            return MASK if str(value) in self.secrets else value
        return value

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


def unmasked(given: Any, stored: Any) -> Any:
    """Return `given` with the values that were shown masked, and came back masked, as they are stored."""
    return outside_if_large("unmasked", (given, stored), lambda: _unmasked(given, stored))


def _unmasked(given: Any, stored: Any) -> Any:
    if given == MASK:
        return stored if stored is not None else given
    if isinstance(given, dict) and isinstance(stored, Mapping):
        return {key: _unmasked(value, stored.get(key)) for key, value in given.items()}
    if isinstance(given, list) and isinstance(stored, list | tuple) and len(given) == len(stored):
        return [_unmasked(value, old) for value, old in zip(given, stored, strict=True)]
    return given


def redact_schema(schema: Any) -> Any:
    """Return a JSON Schema with the defaults and examples of secret properties masked; the rest of it is no secret.

    >>> redact_schema({"properties": {"token": {"type": "string", "default": "abc"}}})
    {'properties': {'token': {'type': 'string', 'default': '***'}}}
    """
    return _in_schema(schema, False)


def _in_schema(node: Any, secret: bool) -> Any:
    if isinstance(node, list | tuple):
        return [_in_schema(item, secret) for item in node]
    if not isinstance(node, Mapping):
        return node
    secret = secret or is_secret_schema(node)
    shown: dict[str, Any] = {}
    for key, item in node.items():
        if key in ("properties", "patternProperties", "$defs", "definitions") and isinstance(item, Mapping):
            shown[key] = {name: _in_schema(part, secret or is_secret_name(str(name))) for name, part in item.items()}
        elif key in ("default", "examples", "const", "enum"):
            shown[key] = _hidden(item) if secret else Redactor().redact_json(item)
        else:
            shown[key] = _in_schema(item, secret)
    return shown


def is_secret_schema(schema: Mapping[str, Any]) -> bool:
    """Whether a schema says that its value is a secret: `writeOnly`, `x-secret`, or `format: password`."""
    return schema.get("writeOnly") is True or schema.get("x-secret") is True or schema.get("format") == "password"


def _hidden(value: Any) -> Any:
    if isinstance(value, list):
        return [MASK for _ in value]
    return None if value is None else MASK


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
        cut = max(newline, len(data) - LINE_HOLD)
        opened = data.rfind(b"-----BEGIN ", max(0, len(data) - MAX_PEM))
        if opened >= 0 and not _PEM_END.search(data, opened):
            cut = min(cut, opened)  # a key in the middle of being written
        return cut


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
