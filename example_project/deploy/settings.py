"""The shop's settings where Prometheus watches it: the metrics page gets its token."""

import os

from site_config import settings as shop
from site_config.settings import *  # noqa: F403

ROOT_URLCONF = "deploy.urls"
CELERY_GUARD = {**shop.CELERY_GUARD, "metrics_token": os.environ["SHOP_METRICS_TOKEN"]}
