"""An OpenID provider as a process: Django with django-oauth-toolkit, on loopback. Run by `tests.support.openid`.

The users' groups are the claim `groups`; those named `tenant:…` are the claim `tenants` as well.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

LOGIN = """<!doctype html><title>The provider</title><form method="post">{% csrf_token %}{{ form }}
<input type="hidden" name="next" value="{{ next }}"><button>Log in</button></form>"""

BASE = "<!doctype html><title>The provider</title>{% block content %}{% endblock %}"
"""The toolkit's own loads its styles from the internet."""


def configure(folder: Path, port: int, key: str) -> None:
    from django.conf import settings

    settings.configure(
        SECRET_KEY="not a secret", DEBUG=False, ALLOWED_HOSTS=["localhost"], ROOT_URLCONF=__name__, USE_TZ=True,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "provider.db"),
                               "OPTIONS": {"timeout": 30}}},
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
                        "django.contrib.messages", "oauth2_provider"],
        MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware", "django.middleware.csrf.CsrfViewMiddleware",
                    "django.contrib.auth.middleware.AuthenticationMiddleware",
                    "django.contrib.messages.middleware.MessageMiddleware"],
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "OPTIONS": {
            "loaders": [("django.template.loaders.locmem.Loader", {"registration/login.html": LOGIN, "oauth2_provider/base.html": BASE}),
                        "django.template.loaders.app_directories.Loader"],
            "context_processors": ["django.template.context_processors.request",
                                   "django.contrib.auth.context_processors.auth"]}}],
        LOGIN_URL="/login/", DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"], LOGGING_CONFIG=None,
        SESSION_COOKIE_NAME="provider_session", CSRF_COOKIE_NAME="provider_csrf",
        OAUTH2_PROVIDER={
            "OIDC_ENABLED": True, "OIDC_RSA_PRIVATE_KEY": key, "OIDC_ISS_ENDPOINT": f"http://localhost:{port}/o",
            "OIDC_RP_INITIATED_LOGOUT_ENABLED": True, "PKCE_REQUIRED": True,
            "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS": True, "ALLOWED_REDIRECT_URI_SCHEMES": ["http", "https"],
            "OAUTH2_VALIDATOR_CLASS": f"{__name__}.validator_class",
            "SCOPES": {"openid": "who you are", "profile": "your name", "email": "your address"},
        },
    )  # fmt: skip


def validator_class():  # type: ignore[no-untyped-def]
    """The toolkit imports this by its name, and calls it to get a validator."""
    from oauth2_provider.oauth2_validators import OAuth2Validator

    class Validator(OAuth2Validator):  # type: ignore[misc]
        oidc_claim_scope = None

        def get_additional_claims(self, request):  # type: ignore[no-untyped-def]
            groups = sorted(group.name for group in request.user.groups.all())
            return {
                "name": request.user.first_name, "email": request.user.email, "email_verified": True, "groups": groups,
                "tenants": [name.removeprefix("tenant:") for name in groups if name.startswith("tenant:")],
                "sid": request.user.username + "-session",
            }  # fmt: skip

    return Validator()


def fill(config: dict) -> None:  # type: ignore[type-arg]
    from django.contrib.auth.models import Group, User
    from oauth2_provider.models import Application

    for name, groups in config["users"].items():
        user = User.objects.create_user(name, f"{name}@example.com", "pw", first_name=name.title())
        user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    for app in config["clients"]:
        Application.objects.create(
            name=app["id"], client_id=app["id"], client_secret=app.get("secret") or "", algorithm=app["algorithm"],
            client_type="confidential" if app.get("secret") else "public", authorization_grant_type="authorization-code",
            redirect_uris=app["redirect_uri"], hash_client_secret=app["algorithm"] == "RS256", post_logout_redirect_uris=app["home"], skip_authorization=app["trusted"],
        )  # fmt: skip


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *_args: object) -> None:
        pass


def urls() -> list:  # type: ignore[type-arg]
    from django.contrib.auth.views import LoginView
    from django.urls import include, path

    return [path("login/", LoginView.as_view()), path("o/", include("oauth2_provider.urls"))]


def main() -> None:
    folder = Path(sys.argv[1])
    config = json.loads((folder / "config.json").read_text())
    sys.modules["tests.support.django_provider"] = sys.modules["__main__"]
    configure(folder, config["port"], config["key"])
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application

    import django

    django.setup()
    call_command("migrate", verbosity=0)
    fill(config)
    globals()["urlpatterns"] = urls()
    with make_server("127.0.0.1", config["port"], get_wsgi_application(), Server, Quiet) as server:
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
