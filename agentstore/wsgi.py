"""The WSGI application, for granian or any other server."""

import os

from django.core.wsgi import get_wsgi_application

# Read by agentstore.config: only a web process limits how long a statement may run.
os.environ.setdefault("AGENTSTORE_PROCESS", "web")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentstore.settings")

application = get_wsgi_application()
