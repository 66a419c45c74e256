"""How much a runner may say; the OpenAPI document states the same figures."""

MAX_NAME = 200  # characters of a kind, a capability, a runner's name or version
MAX_WORDS = 100  # kinds or capabilities in one claim
MAX_RUN_REF = 2000
MAX_COUNT = 2**63 - 1  # what a bigint column holds
SMALL_BODY = 64 * 1024  # bytes of a claim or heartbeat; a result may have settings.JSON_BODY_BYTES
