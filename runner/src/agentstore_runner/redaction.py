"""Removal of secrets from text and JSON documents, the same code on the runner and on the server.

Three layers: values that are known, names of fields, and shapes of well-known credentials. Shapes alone leak, so
callers register every secret they hold. Every quantifier is bounded and scanning resumes after a hit, which keeps
the work linear on hostile input.
"""

import base64
import binascii
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus

from agentstore_runner.contract.sensitive_keys import sensitive_key

VERSION: Final = 1
MIN_LENGTH: Final = 6
"""Characters a known value needs: a shorter one would mask ordinary words everywhere."""

_MAX_DEPTH = 100
_MAX_NESTED_JSON = 3
_MARKER = re.compile(r"\[REDACTED:[a-z-]{1,30}\]")

# --- shapes -----------------------------------------------------------------------------------------------------
_LEFT = r"(?<![A-Za-z0-9_-])"
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[^-]|-(?!----)){0,4096}(?:[^-]|-(?!----)){0,4096}"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
)
_JWT = re.compile(_LEFT + r"eyJ[A-Za-z0-9_-]{5,4096}\.[A-Za-z0-9_-]{5,4096}(?:\.[A-Za-z0-9_-]{0,4096}){0,3}")
_TOKEN = re.compile(
    _LEFT + "(?:"
    r"gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255}|gl(?:pat|ptt|dt|rt|soat)-[A-Za-z0-9_.-]{16,255}"
    r"|ags_[a-z]_[A-Za-z0-9_-]{16,255}|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])|AIza[A-Za-z0-9_-]{30,60}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,255}|xapp-[A-Za-z0-9-]{10,255}|(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{10,255}"
    r"|sk-[A-Za-z0-9_-]{20,255}|whsec_[A-Za-z0-9+/=]{16,255}|npm_[A-Za-z0-9]{30,60}|pypi-[A-Za-z0-9_-]{40,500}"
    r"|SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,128}|hv[sbr]\.[A-Za-z0-9_-]{20,300}|do[opr]_v1_[a-f0-9]{40,80}"
    r"|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{20,64}|dckr_pat_[A-Za-z0-9_-]{16,64}|glsa_[A-Za-z0-9_]{30,64}"
    r"|hf_[A-Za-z0-9]{30,64}|ya29\.[A-Za-z0-9_-]{20,500}|ATATT[A-Za-z0-9_=-]{20,300}|tskey-[a-z]{2,10}-[A-Za-z0-9-]{16,100}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{50,64}|lin_api_[A-Za-z0-9]{30,60}|sntr[yu]s?_[A-Za-z0-9_=+/.-]{30,300}"
    r"|PMAK-[a-f0-9]{20,30}-[a-f0-9]{30,40}|v1\.0-[a-f0-9]{20,30}-[a-f0-9]{100,200}|EAA[A-Za-z0-9]{60,300}"
    ")"
)
_BEARER = re.compile(r"(?i)(?<![A-Za-z0-9])(bearer[ \t]{1,5})([A-Za-z0-9._~+/=-]{8,4096})")
_BASIC = re.compile(r"(?i)(?<![A-Za-z0-9])(basic[ \t]{1,5})([A-Za-z0-9+/_-]{6,4096}={0,2})")
_USER_INFO = re.compile(
    r"(?i)(?<![a-z0-9+.-])([a-z][a-z0-9+.-]{0,20}://[^\s/:@\"'<>?#\\]{0,200}:)([^\s/@\"'<>\\]{1,500})(?=@)"
)
_WEBHOOK = re.compile(
    r"(https://(?:hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/\d{5,25}/"
    r"|[a-z0-9-]{1,60}\.webhook\.office\.com/webhookb2/|api\.telegram\.org/bot))([A-Za-z0-9_/:@.-]{10,500})"
)
_CURL_USER = re.compile(r"(?<!\S)((?:-u|--user)[ =]{1,3}[^\s:\"']{1,100}:)([^\s\"']{1,500})")
_INPUT = re.compile(r"(?i)<input\b[^<>]{1,1000}>")
_INPUT_VALUE = re.compile(r"(?i)(\bvalue\s{0,3}=\s{0,3})(?:\"([^\"]{1,1000})\"|'([^']{1,1000})')")
_INPUT_NAME = re.compile(r"(?i)\b(?:name|id|autocomplete)\s{0,3}=\s{0,3}[\"']?([A-Za-z0-9_.-]{1,60})")
_INPUT_PASSWORD = re.compile(r"(?i)\btype\s{0,3}=\s{0,3}[\"']?password\b")
_ELEMENT = re.compile(r"(<([A-Za-z][\w:.-]{1,60})>)([^<>]{1,4096})(?=</)")

# --- names in text ----------------------------------------------------------------------------------------------
_ASSIGNMENT = re.compile(
    r"(?<![A-Za-z0-9_.-])(?<!\[REDACTED:)(?:"
    r"(?P<name>[A-Za-z_][A-Za-z0-9_.-]{1,60})(?:\[\])?(?P<quote>\\{0,8}[\"'])?\]?[ \t]{0,3}"
    r"(?P<sep>=>|:=|==|[:=]|%3[Dd])[ \t]{0,3}"
    r"|--(?P<flag>[A-Za-z][A-Za-z0-9-]{1,60})(?:=|[ \t]{1,3})(?!-)"
    r")"
)
_VALUE = re.compile(
    r"\[REDACTED:[a-z-]{1,30}\]"
    r"|(?P<open>\\{0,8})(?P<mark>[\"'])(?P<quoted>(?:(?!(?P=open)(?P=mark))[^\n]){1,4096})(?:(?P=open)(?P=mark))?"
    r"|(?P<bare>[^\s\"',;&<>(){}\[\]\\|]{1,4096})"
)
_HEADER_VALUE = re.compile(r"(?P<open>\\{0,8})(?P<mark>[\"']?)(?P<quoted>[^\r\n\"'\\]{1,4096})")
_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie"})
_TEMPLATE = "${secret:"  # names a secret and holds none
_COUNTED = re.compile(r"(?i:(?:^|[_.-])tokens)\Z|[a-z]Tokens\Z")
_JSON_LITERAL = re.compile(r"-?[0-9][0-9.eE+-]{0,60}|true|false|null")
# After a colon these words open a sentence about the secret, not the secret: "Password: required".
_PROSE_WORDS = (
    "a an the is was are be must may can cannot should not no yes none null nil true false empty missing required "
    "optional invalid expired wrong incorrect unknown unset set hidden shown found too at has have please enter "
    "your this that it undefined disabled enabled ok valid rejected refused accepted changed and or for in of on "
    "with expected got erforderlich falsch fehlt ungültig abgelaufen"
)
_PROSE = frozenset(_PROSE_WORDS.split())


def _encodings(value: str) -> Iterator[str]:
    """Yield the forms in which a value travels: raw, JSON, URL, HTML and base64 in three alignments."""
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    raw = value.encode("utf-8", "surrogatepass")
    for quoted in (quote(raw, safe=""), quote_plus(raw), quote(raw)):
        yield quoted
        yield re.sub("%[0-9A-F]{2}", lambda hit: hit[0].lower(), quoted)
    yield html.escape(value)
    yield html.escape(value, quote=False)
    yield html.escape(value).replace("&#x27;", "&#39;")
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).decode()
        # Characters at either end also carry bits of the neighbours, so they are not part of the needle.
        needle = encoded[(0, 2, 3)[shift] : (shift + len(raw)) * 8 // 6]
        yield needle
        yield needle.replace("+", "-").replace("/", "_")


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)


def _parsed(text: str) -> Any:
    """Return the JSON object, list or string that a text is, or None when it is something else."""
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list | str) else None


def _like_a_token(value: str) -> bool:
    return len(value) >= 32 or any(c.isdigit() for c in value) or (value != value.lower() and not value.istitle())


def _basic_credentials(value: str) -> bool:
    text = value.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b":" in base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False


class Redactor:
    """Replaces secrets by `[REDACTED:kind]` and counts the hits; what is marked already stays as it is."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        """Register known secret values; raises ValueError for one shorter than MIN_LENGTH characters."""
        self.count = 0
        needles: set[str] = set()
        self._known_values: set[str] = set()
        for value in known:
            if len(value) < MIN_LENGTH:
                raise ValueError(
                    f"a secret of {len(value)} characters cannot be masked; it needs at least {MIN_LENGTH}"
                )
            container = _parsed(value)
            leaves = [leaf for leaf in _leaves(container) if len(leaf) >= MIN_LENGTH] if container is not None else []
            stripped = value.strip()
            for form in {value, *leaves, *([stripped] if len(stripped) >= MIN_LENGTH else [])}:
                self._known_values.add(form)
                needles.update(needle for needle in _encodings(form) if len(needle) >= MIN_LENGTH)
        ordered = sorted(needles, key=lambda needle: (-len(needle), needle))
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """Return the text without secrets; JSON stays JSON."""
        return self._text(text, _MAX_NESTED_JSON)

    def document(self, value: Any) -> Any:
        """Return a copy of a JSON value without secrets: by field name, by known value and by shape."""
        return self._walk(value, _MAX_DEPTH, _MAX_NESTED_JSON)

    def _hit(self, kind: str) -> str:
        self.count += 1
        return f"[REDACTED:{kind}]"

    # --- JSON ---------------------------------------------------------------------------------------------------
    def _walk(self, value: Any, depth: int, nested: int) -> Any:
        if isinstance(value, str):
            return self._text(value, nested)
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int | float):
            return self._hit("secret") if self._known_values and str(value) in self._known_values else value
        if not isinstance(value, dict | list):
            return value
        if depth == 0:
            return self._hit("depth")
        if isinstance(value, list):
            return [self._walk(item, depth - 1, nested) for item in value]
        label = next((value[key] for key in ("name", "key", "header") if isinstance(value.get(key), str)), "")
        pair = self._names_a_secret(label)
        result: dict[str, Any] = {}
        for key, item in value.items():
            name = self._unique(self._text(key, 0), result) if isinstance(key, str) else key
            hidden = self._names_a_secret(key) or (pair and key == "value")
            result[name] = self._masked(item) if hidden else self._walk(item, depth - 1, nested)
        return result

    def _names_a_secret(self, name: object) -> bool:
        """Judge a name without the secrets inside it, so that a second pass judges the same."""
        if not isinstance(name, str):
            return False
        before = self.count
        bare = _MARKER.sub("", self._text(name, 0))
        self.count = before
        return sensitive_key(bare)

    def _masked(self, value: Any) -> Any:
        if not isinstance(value, str | list | dict) or not value:
            return value
        leaves = list(_leaves(value))
        if leaves and all(_MARKER.fullmatch(leaf) for leaf in leaves):
            return value
        return self._hit("key")

    @staticmethod
    def _unique(name: str, taken: dict[str, Any]) -> str:
        candidate, number = name, 1
        while candidate in taken:
            number += 1
            candidate = f"{name}#{number}"
        return candidate

    # --- text ---------------------------------------------------------------------------------------------------
    def _text(self, text: str, nested: int) -> str:
        if len(text) < MIN_LENGTH:
            return text
        if nested and (container := _parsed(text)) is not None:
            before = self.count
            clean = self._walk(container, _MAX_DEPTH, nested - 1)
            return text if self.count == before else json.dumps(clean, ensure_ascii=False)
        if self._known is not None:
            text = self._known.sub(lambda _: self._hit("secret"), text)
        for literal, pattern, kind in _SHAPES:
            if literal in text:
                text = pattern.sub(self._whole(kind), text)
        for literals, pattern, kind, plausible in _PAIRED_SHAPES:
            if any(literal in text for literal in literals):
                text = pattern.sub(self._second(kind, plausible), text)
        text = _TOKEN.sub(self._whole("token"), text)
        if "<" in text:
            text = _INPUT.sub(self._input, text)
            text = _ELEMENT.sub(self._element, text)
        return self._assignments(text) if "=" in text or ":" in text or "--" in text or "%3" in text else text

    def _whole(self, kind: str) -> Callable[[re.Match[str]], str]:
        return lambda _: self._hit(kind)

    def _second(self, kind: str, plausible: Callable[[str], bool]) -> Callable[[re.Match[str]], str]:
        return lambda hit: hit[1] + self._hit(kind) if plausible(hit[2]) else hit[0]

    def _input(self, hit: re.Match[str]) -> str:
        tag = hit[0]
        if not (_INPUT_PASSWORD.search(tag) or any(sensitive_key(name) for name in _INPUT_NAME.findall(tag))):
            return tag
        return _INPUT_VALUE.sub(
            lambda v: v[0] if _MARKER.fullmatch(v[2] or v[3]) else f'{v[1]}"{self._hit("key")}"', tag
        )

    def _element(self, hit: re.Match[str]) -> str:
        secret = sensitive_key(hit[2]) and hit[3].strip() and not _MARKER.fullmatch(hit[3].strip())
        return hit[1] + self._hit("key") if secret else hit[0]

    def _assignments(self, text: str) -> str:
        parts: list[str] = []
        done = position = 0
        while (hit := _ASSIGNMENT.search(text, position)) is not None:
            position = hit.end()
            name = hit["name"] or hit["flag"]
            if not sensitive_key(name) or text.startswith(_TEMPLATE, hit.start() - 2):
                continue
            value = (_HEADER_VALUE if name.lower() in _HEADERS and hit["sep"] == ":" else _VALUE).match(text, position)
            if value is None or not self._is_secret_value(hit, value):
                continue
            group = "quoted" if value.groupdict().get("quoted") else "bare"
            parts += (text[done : value.start(group)], self._hit("key"))
            done = position = value.end(group)
        parts.append(text[done:])
        return "".join(parts)

    @staticmethod
    def _is_secret_value(hit: re.Match[str], value: re.Match[str]) -> bool:
        groups = value.groupdict()
        quoted, bare = groups.get("quoted"), groups.get("bare")
        content = quoted or bare
        if not content or _MARKER.search(content):
            return False
        if quoted is not None:
            return bool(content.strip())
        if content.isdigit() and hit["name"] and _COUNTED.search(hit["name"]):
            return False  # of several tokens a number is how many
        if hit["quote"] and _JSON_LITERAL.fullmatch(content):
            return False
        return not (hit["sep"] in (":", None) and content.strip(".!?:").lower() in _PROSE) and content not in (
            "null",
            "None",
        )


_SHAPES: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("-----BEGIN ", _PRIVATE_KEY, "private-key"),
    ("eyJ", _JWT, "jwt"),
)
_PAIRED_SHAPES: tuple[tuple[tuple[str, ...], re.Pattern[str], str, Callable[[str], bool]], ...] = (
    (("earer", "EARER"), _BEARER, "authorization", _like_a_token),
    (("asic", "ASIC"), _BASIC, "authorization", _basic_credentials),
    (("://",), _USER_INFO, "password", lambda value: not _MARKER.match(value)),
    (("https://",), _WEBHOOK, "webhook", lambda value: not _MARKER.match(value)),
    (("-u", "--user"), _CURL_USER, "password", lambda value: not _MARKER.match(value)),
)
