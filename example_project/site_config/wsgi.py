"""The WSGI application, with the static files: one process is enough for an example."""

import os

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_config.settings")

application = StaticFilesHandler(get_wsgi_application())
