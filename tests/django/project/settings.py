"""Settings of a shop, as small as Django allows. What differs from one test to the next comes from the environment."""

import json
import os

SECRET_KEY = "not a secret"
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "urls"
ALLOWED_HOSTS = ["testserver"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = os.environ["SHOP_USE_TZ"] == "yes"
TIME_ZONE = "America/New_York"

DATABASES = json.loads(os.environ["SHOP_DATABASES"])
PENSTOCK_DATABASE_URL = os.environ["SHOP_PENSTOCK_URL"]
