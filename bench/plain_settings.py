"""The product's settings, middleware and all, for plain views in place of its addresses."""

from agentstore.settings import *  # noqa: F403  (settings are inherited by a star import)

ROOT_URLCONF = "bench.plain_urls"
