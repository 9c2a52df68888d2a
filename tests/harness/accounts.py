"""Users and sessions of a server under test."""

from harness.api import Api, quote

FAST = "[chttpd_auth]\niterations = 10\n"


def start(ctx, name, ini=FAST, admin="admin:admin", options=()):
    config = ctx.root / f"{name}.ini"
    config.write_text(ini, encoding="utf-8")
    server = ctx.server(name, options=["--config", str(config), *options], admin=admin).start()
    api = server.api()
    for database in ("_users", "_replicator"):
        api.expect((201, 202, 412), "PUT", "/" + database)
    return server, api


def make_user(api, name, password="secret", roles=(), **more):
    user = {"name": name, "password": password, "type": "user", "roles": list(roles), **more}
    return api.expect(201, "PUT", f"/_users/org.couchdb.user:{quote(name)}", user)["rev"]


def user_doc(api, name):
    return api.expect(200, "GET", f"/_users/org.couchdb.user:{quote(name)}")


def who(server, credentials=None, headers=None):
    """The name and roles that the server sees; None when it refuses to look."""
    response = Api(server.url, credentials).get("/_session", headers=headers or {})
    if response.status != 200:
        return None
    context = response.json["userCtx"]
    return context["name"], context["roles"]


def log_in(server, name, password="secret", **more):
    response = Api(server.url, None).post("/_session", {"name": name, "password": password, **more})
    if response.status != 200:
        return None
    return response.headers["Set-Cookie"].split(";")[0].removeprefix("AuthSession=")


def with_cookie(value):
    return {"Cookie": f"AuthSession={value}"}


def config(api, section, key, value):
    api.expect(200, "PUT", f"/_node/_local/_config/{section}/{key}", value)
