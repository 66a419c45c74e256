"""Which names of fields, headers and parameters stand for a secret."""

import re

_WORD = re.compile(r"[A-Z]{2,64}(?![a-z])|[A-Z]?[a-z]{1,64}|[A-Z]")
_MAX_NAME = 200

# The last words of a name decide: `db_password` and `idToken` are sensitive, `token_type` and `tokens_used` are not.
_LAST_WORD_LIST = (
    "password passwords passwd passphrase passcode passwort kennwort pwd pw secret secrets token tokens apikey "
    "authorization authentication bearer cookie cookies credential credentials creds jwt otp totp pin cvv cvc "
    "csrf xsrf sessionid phpsessid jsessionid privatekey secretkey accesskey authtoken accesstoken refreshtoken "
    "idtoken clientsecret"
)
_LAST_WORDS = frozenset(_LAST_WORD_LIST.split())
_LAST_PAIR_LIST = (
    "api-key app-key private-key secret-key access-key signing-key encryption-key master-key account-key ssh-key "
    "deploy-key storage-key auth-key session-key shared-key hmac-key service-key subscription-key session-id "
    "connection-string mfa-code otp-code verification-code recovery-codes backup-codes recovery-code"
)
_LAST_PAIRS = frozenset(tuple(pair.split("-")) for pair in _LAST_PAIR_LIST.split())
_WHOLE_NAMES = frozenset(["auth", "pass", "sid", "session", "sig", "signature"])
# Words that may follow the secret's own word without changing what the field holds.
_FOLLOWING_WORDS = "value text plain hash confirm confirmation repeat again new old current base b64 base64"
_TRAILING = frozenset(_FOLLOWING_WORDS.split())
_HARMLESS = frozenset({("page", "token"), ("pagination", "token"), ("continuation", "token"), ("sync", "token")})


def sensitive_key(name: str) -> bool:
    """Say whether a field of this name holds a secret: camelCase, snake_case and header spelling alike."""
    words = [word.lower() for word in _WORD.findall(name[-_MAX_NAME:])]
    if not words:
        return False
    if len(words) == 1 and words[0] in _WHOLE_NAMES:
        return True
    while len(words) > 1 and words[-1] in _TRAILING:
        words.pop()
    pair = tuple(words[-2:])
    if pair in _HARMLESS:
        return False
    return words[-1] in _LAST_WORDS or pair in _LAST_PAIRS or words[-3:] == ["access", "key", "id"]
