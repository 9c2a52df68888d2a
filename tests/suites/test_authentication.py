"""Users, sessions, tokens, proxies, lock-outs, users' databases: who is recognised, until when, and what is never said."""

import base64
import concurrent.futures
import hashlib
import hmac
import json
import shutil
import threading
import time

import pytest

from harness.accounts import FAST, config, log_in, make_user, start, user_doc, who, with_cookie
from harness.api import Api, basic, quote
from harness.server import wait_until
from harness.tokens import KeyPair, base64url, by_hmac, cookie, decoded, jwt

pytestmark = [pytest.mark.quick, pytest.mark.costly_hashes]

HANDLERS = "".join(f"{{chttpd_auth, {name}_authentication_handler}}, " for name in ("jwt", "proxy", "cookie", "default")).rstrip(", ")


def change(api, name, **members):
    doc = {**user_doc(api, name), **members}
    return api.expect(201, "PUT", f"/_users/org.couchdb.user:{name}", doc)["rev"]


def test_user_documents(ctx):
    server, api = start(ctx, "documents")
    check = ctx.report.equal
    make_user(api, "anna", colour="red", big=123456789012345678901234567890)
    doc = user_doc(api, "anna")
    key = hashlib.pbkdf2_hmac("sha256", b"secret", doc["salt"].encode(), 10).hex()
    check(
        "a password is hashed as CouchDB does",
        (doc["password_scheme"], doc["pbkdf2_prf"], doc["iterations"], doc["derived_key"]),
        ("pbkdf2", "sha256", 10, key),
    )
    check("what was beside it stays", (doc["colour"], doc["big"], "password" in doc), ("red", 123456789012345678901234567890, False))
    replicated = {"_id": "org.couchdb.user:rita", "_rev": "3-abc", "name": "rita", "type": "user", "roles": ["r"], "password": "secret"}
    check("a replicated user is taken", api.post("/_users/_bulk_docs", {"new_edits": False, "docs": [replicated]}).json, [])
    check("and its password hashed, under its revision", (user_doc(api, "rita")["_rev"], "password" in user_doc(api, "rita")), ("3-abc", False))
    check("it can log in", who(server, "rita:secret"), ("rita", ["r"]))
    bad = {**replicated, "_rev": "4-abc", "roles": ["_admin"]}
    done = api.post("/_users/_bulk_docs", {"new_edits": False, "docs": [bad]}).json
    check("replicated users are checked too", done[0]["reason"], "No system roles (starting with underscore) in users db.")
    check("the rules are in _design/_auth", "validate_doc_update" in api.get("/_users/_design/_auth").json, True)
    rev = api.get("/_users/_design/_auth").json["_rev"]
    api.expect(200, "DELETE", f"/_users/_design/_auth?rev={rev}")
    ctx.report.check("which comes back", wait_until(lambda: api.get("/_users/_design/_auth").status == 200, 20))
    api.expect(200, "DELETE", "/_users")
    check("without the database nobody is known", who(server, "anna:secret"), None)
    api.expect(201, "PUT", "/_users")
    make_user(api, "anna", "other")
    check("a new one is used at once", (who(server, "anna:secret"), who(server, "anna:other")), (None, ("anna", [])))
    refused = api.put("/_users/_security", {})
    check(
        "its security object is not editable",
        (refused.status, refused.json["reason"]),
        (403, "You can't edit the security object of the user database."),
    )
    api.close()
    server.stop()


def test_design_document(ctx):
    """`_design/_auth`, run as JavaScript in another database, says what the server's own rules say."""
    server, api = start(ctx, "design")
    ctx.report.check("it is written", wait_until(lambda: api.get("/_users/_design/_auth").status == 200, 20))
    design = api.get("/_users/_design/_auth").json
    api.expect(201, "PUT", "/rules")
    api.expect(201, "PUT", "/rules/_design/_auth", {name: design[name] for name in ("language", "validate_doc_update")})
    good = {"name": "joe", "type": "user", "roles": ["a"]}
    without = lambda *names: {name: value for name, value in good.items() if name not in names}
    docs = [
        good,
        {},
        without("type"),
        {**good, "type": "x"},
        without("name"),
        {**good, "name": ""},
        without("roles"),
        {**good, "roles": "a"},
        {**good, "roles": {}},
        {**good, "roles": [1]},
        {**good, "roles": None},
        {**good, "name": "jo"},
        {**good, "roles": ["_admin"]},
        {**good, "roles": ["_metrics"]},
        {**good, "password_scheme": "md5"},
        {**good, "password_scheme": "pbkdf2"},
        {**good, "password_scheme": "pbkdf2", "iterations": "1"},
        {**good, "password_scheme": "pbkdf2", "iterations": 1},
        {**good, "password_scheme": "pbkdf2", "iterations": 1, "derived_key": 1},
        {**good, "password_scheme": None},
        {**good, "password_sha": "x"},
        {**good, "password_sha": "x", "salt": "y"},
    ]
    names = ["joe", "_joe", "j:e", "é", "5"]
    cases = [("joe", doc) for doc in docs] + [(name, {**good, "name": name}) for name in names] + [("5", {**good, "name": 5})]
    wrong = []
    for name, doc in cases:
        said = []
        for database in ("_users", "rules"):
            path = f"/{database}/org.couchdb.user:{quote(name)}"
            response = api.put(path, doc)
            said.append(response.json.get("reason"))
            if response.status == 201:
                api.expect(200, "DELETE", f"{path}?rev={response.json['rev']}")
        if said[0] != said[1]:
            wrong.append((name, doc, said))
    ctx.report.equal(f"and refuses the same {len(cases)} documents, for the same reasons", wrong, [])
    api.close()
    server.stop()


def test_sessions(ctx):
    server, api = start(ctx, "sessions")
    check = ctx.report.equal
    make_user(api, "anna", roles=["r"])
    secret = api.expect(200, "GET", "/_node/_local/_config/chttpd_auth/secret")
    salt, now = user_doc(api, "anna")["salt"], int(time.time())
    value = log_in(server, "anna")
    name, issued, mac = decoded(value)
    check("a cookie is CouchDB's", value, cookie("anna", salt, secret, issued))
    ctx.report.check("of now", name == "anna" and now <= issued <= now + 60, issued)
    anna, nobody = ("anna", ["r"]), (None, [])
    seen = lambda made: who(server, None, with_cookie(made))
    check("it is a session", seen(value), anna)
    check("so is one made by CouchDB with SHA-1", seen(cookie("anna", salt, secret, now, "sha1")), anna)
    check("it ends with its time", seen(cookie("anna", salt, secret, now - 601)), nobody)
    for what, made in {
        "secret": cookie("anna", salt, secret + "x", now),
        "salt": cookie("anna", "", secret, now),
        "name": cookie("admin", salt, secret, now),
        "algorithm": cookie("anna", salt, secret, now, "sha512"),
        "user": cookie("nobody", "", secret, now),
    }.items():
        check(f"one of another {what} is none", seen(made), nobody)
    raw = f"anna:{now:X}:".encode() + mac
    check("a time cannot be moved", seen(base64url(raw.replace(f"{now:X}".encode(), b"FFFFFFFF"))), nobody)
    renewed = lambda age: (
        "Set-Cookie" in Api(server.url, None).get("/_session", headers=with_cookie(cookie("anna", salt, secret, int(time.time()) - age))).headers
    )
    check("after a tenth of its life it is given anew", (renewed(10), renewed(300)), (False, True))
    form = Api(server.url, None).request(
        "POST", "/_session?next=/_up", b"username=anna&password=secret", {"Content-Type": "application/x-www-form-urlencoded"}
    )
    check("a form is led on", (form.status, form.headers["Location"]), (302, server.url + "/_up"))
    own = server.url + "//evil.example"
    refused = ("http://evil.example", "evil", "javascript:x", "")
    for target, wanted in {
        "//evil.example": (302, own),
        "/\\evil.example": (200, None),
        "/a%0d%0aX:1": (200, None),
        **dict.fromkeys(refused, (400, None)),
    }.items():
        answer = Api(server.url, None).request("POST", f"/_session?next={target}", {"name": "anna", "password": "secret"})
        check(f"but never to another server: {target}", (answer.status, answer.headers["Location"]), wanted)
    for method, path in (("GET", "/_duck"), ("GET", "/_duck/_all_docs")):
        answers = [Api(server.url, None).request(method, path), Api(server.url, "anna:secret").request(method, path)]
        check(f"{method} {path} is for server admins", [answer.status for answer in answers], [401, 401])
    both = Api(server.url, None).post("/_session", {"name": "anna", "username": "bob", "password": "x"})
    check("two names are one too many", (both.status, both.json["reason"]), (400, "request body contains different usernames"))
    check("?basic=true asks for a login", Api(server.url, None).get("/_session?basic=true").status, 401)
    config(api, "chttpd_auth", "same_site", "strict")
    config(api, "chttpd_auth", "cookie_domain", "example.com")
    config(api, "chttpd_auth", "allow_persistent_cookies", "false")
    header = Api(server.url, None).post("/_session", {"name": "anna", "password": "secret"}).headers["Set-Cookie"]
    check("attributes follow the settings", header.split("; ")[1:], ["Version=1", "Domain=example.com", "Path=/", "HttpOnly", "SameSite=Strict"])
    out = Api(server.url, None).delete("/_session", headers=with_cookie(value))
    ctx.report.check("a logout empties the cookie", out.headers["Set-Cookie"].startswith("AuthSession=;"), out.headers["Set-Cookie"])
    api.close()
    server.stop()


def test_ends_of_sessions(ctx):
    server, api = start(ctx, "ends")
    check = ctx.report.equal
    make_user(api, "anna", roles=["r"])
    value = log_in(server, "anna")
    seen = lambda: (who(server, "anna:secret"), who(server, None, with_cookie(value)))
    anna = ("anna", ["r"])
    check("a password and a cookie are known", (seen(), seen()), ((anna, anna), (anna, anna)))
    for roles in (["x"], ["x", "y"], []):
        change(api, "anna", roles=roles)
        check(f"new roles {roles} count at once", seen(), (("anna", roles), ("anna", roles)))
    change(api, "anna", colour="red")
    check("another change leaves the session", seen(), (("anna", []), ("anna", [])))
    change(api, "anna", password="new")
    check("a new password ends both at once", (seen(), who(server, "anna:new")), ((None, (None, [])), ("anna", [])))
    change(api, "anna", password="new")
    value = log_in(server, "anna", "new")
    rev = user_doc(api, "anna")["_rev"]
    api.expect(200, "DELETE", f"/_users/org.couchdb.user:anna?rev={rev}")
    check("so does deletion", (who(server, "anna:new"), who(server, None, with_cookie(value))), (None, (None, [])))
    make_user(api, "anna", "new")
    check(
        "another user of that name has another session", (who(server, "anna:new"), who(server, None, with_cookie(value))), (("anna", []), (None, []))
    )
    api.expect(201, "PUT", "/mine")
    api.expect(200, "PUT", "/mine/_security", {"members": {"names": ["anna"]}})
    anna_api = Api(server.url, "anna:new")
    check("a member reads", anna_api.get("/mine").status, 200)
    api.expect(200, "PUT", "/mine/_security", {"members": {"names": ["bob"]}})
    check("until it is none", anna_api.get("/mine").status, 403)
    concurrent_changes(ctx, server, api)
    api.close()
    server.stop()


def concurrent_changes(ctx, server, api):
    """Whoever asks after a change of password was acknowledged is judged by the new one, whatever goes on beside."""
    make_user(api, "carl", "p0")
    stop, wrong = threading.Event(), []

    def hammer():
        own = Api(server.url, "carl:p0")
        while not stop.is_set():
            own.get("/_session")

    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        config(api, "chttpd_auth_lockout", "mode", "off")
        for n in range(1, 40):
            change(api, "carl", password=f"p{n}")
            if who(server, f"carl:p{n - 1}") is not None or who(server, f"carl:p{n}") != ("carl", []):
                wrong.append(n)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    ctx.report.equal("no old password counts after its change, with checks going on", wrong, [])


def test_older_hashes(ctx):
    server, api = start(ctx, "older", "[chttpd_auth]\niterations = 20\n")
    check = ctx.report.equal
    sha1 = hashlib.pbkdf2_hmac("sha1", b"secret", b"salty", 10).hex()
    simple = hashlib.sha1(b"secretsalty").hexdigest()
    hashes = {
        "pia": {"password_scheme": "pbkdf2", "iterations": 10, "derived_key": sha1},
        "sim": {"password_scheme": "simple", "password_sha": simple},
    }
    for name, members in hashes.items():
        api.expect(
            201, "PUT", f"/_users/org.couchdb.user:{name}", {"name": name, "type": "user", "roles": [], "salt": "salty", "kept": [1.50], **members}
        )
        value = cookie(name, "salty", api.expect(200, "GET", "/_node/_local/_config/chttpd_auth/secret"), int(time.time()))
        check(f"{name}: a wrong password changes nothing", (who(server, f"{name}:wrong"), "kept" in user_doc(api, name)), (None, True))
        check(f"{name}: an older hash is accepted", who(server, f"{name}:secret"), (name, []))
        doc = user_doc(api, name)
        key = hashlib.pbkdf2_hmac("sha256", b"secret", b"salty", 20).hex()
        check(
            f"{name}: and replaced, with its salt",
            (doc["pbkdf2_prf"], doc["iterations"], doc["derived_key"], doc["salt"], doc["kept"]),
            ("sha256", 20, key, "salty", [1.5]),
        )
        check(f"{name}: nothing is left of the old one", "password_sha" in doc, False)
        check(f"{name}: sessions go on", who(server, None, with_cookie(value)), (name, []))
        check(f"{name}: once", (who(server, f"{name}:secret"), user_doc(api, name)["_rev"]), ((name, []), doc["_rev"]))
    photo = {"photo": {"content_type": "image/png", "data": "cGhvdG8="}}
    api.expect(
        201,
        "PUT",
        "/_users/org.couchdb.user:pam",
        {"name": "pam", "type": "user", "roles": [], "salt": "salty", "password_scheme": "simple", "password_sha": simple, "_attachments": photo},
    )
    check(
        "attachments stay when a hash is replaced",
        (who(server, "pam:secret"), user_doc(api, "pam")["password_scheme"], api.get("/_users/org.couchdb.user:pam/photo").raw),
        (("pam", []), "pbkdf2", b"photo"),
    )
    config(api, "chttpd_auth", "upgrade_hash_on_auth", "false")
    config(api, "chttpd_auth", "iterations", "30")
    check("unless that is off", (who(server, "pia:secret"), user_doc(api, "pia")["iterations"]), (("pia", []), 20))
    config(api, "chttpd_auth", "max_iterations", "19")
    refused = Api(server.url, None).post("/_session", {"name": "pia", "password": "secret"})
    check("too many iterations are refused", (refused.status, refused.json["reason"]), (403, "Iteration count is too high for this server"))
    key = hashlib.pbkdf2_hmac("sha512", b"secret", b"salty", 7).hex()
    long_hash = {"salt": "salty", "password_scheme": "pbkdf2", "pbkdf2_prf": "sha512", "iterations": 7, "derived_key": key}
    api.expect(201, "PUT", "/_users/org.couchdb.user:pat", {"name": "pat", "type": "user", "roles": [], **long_hash})
    login = lambda: Api(server.url, None).post("/_session", {"name": "pat", "password": "secret"}).status
    check("iterations of SHA-512 count three times", login(), 403)
    config(api, "chttpd_auth", "max_iterations", "21")
    check("so a few are allowed", login(), 200)
    api.close()
    server.stop()


def test_second_factor(ctx):
    server, api = start(ctx, "factor")
    key = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
    make_user(api, "anna", totp={"key": key, "length": 6})
    check = ctx.report.equal
    check("with a second factor a password alone is not enough", (who(server, "anna:secret"), log_in(server, "anna")), (None, None))
    check("nor with a wrong one", log_in(server, "anna", token="000000x"), None)
    token = totp(b"12345678901234567890", int(time.time()))
    ctx.report.check("with the right one it is", log_in(server, "anna", token=token) is not None)
    check("once", log_in(server, "anna", token=token), None)
    after = totp(b"12345678901234567890", int(time.time()) + 30)
    ctx.report.check("and so does the next one", log_in(server, "anna", token=after) is not None)
    check("and still not alone", (who(server, "anna:secret"), log_in(server, "anna")), (None, None))
    api.close()
    server.stop()


def totp(key, now):
    mac = hmac.new(key, (now // 30).to_bytes(8, "big"), "sha1").digest()
    at = mac[-1] & 15
    return f"{(int.from_bytes(mac[at : at + 4], 'big') & 0x7FFFFFFF) % 10**6:06}"


def test_roles_of_admins(ctx):
    server, api = start(ctx, "admins")
    check = ctx.report.equal
    make_user(api, "admin", "other", roles=["extra"])
    check("an administrator's document gives roles", who(server, "admin:admin"), ("admin", ["_admin", "extra"]))
    check("but no password", who(server, "admin:other"), None)
    make_user(api, "anna")
    config(api, "admins", "anna", "adminpass")
    check(
        "a user who becomes administrator has that password alone",
        (who(server, "anna:secret"), who(server, "anna:adminpass")),
        (None, ("anna", ["_admin"])),
    )
    api.expect(200, "DELETE", "/_node/_local/_config/admins/anna")
    check("and is a user again", (who(server, "anna:adminpass"), who(server, "anna:secret")), (None, ("anna", [])))
    make_user(api, "meter", roles=["_metrics"])
    meter = Api(server.url, "meter:secret")
    check(
        "_metrics reads statistics and no more",
        [meter.get(f"/_node/_local/{part}").status for part in ("_stats", "_system", "_prometheus", "_config")],
        [200, 200, 200, 401],
    )
    api.close()
    server.stop()


def test_proxies(ctx):
    server, api = start(ctx, "proxies", FAST + f"secret = s3cret\n[chttpd]\nauthentication_handlers = {HANDLERS}\n")
    check = ctx.report.equal
    headers = {"X-Auth-CouchDB-UserName": "joe", "X-Auth-CouchDB-Roles": "a, b"}
    check("without a secret a proxy is believed", who(server, None, headers), ("joe", ["a", "b"]))
    ctx.report.check("which the log warns of", "proxy_use_secret" in server.log(), server.log()[-1000:])
    config(api, "chttpd_auth", "proxy_use_secret", "true")
    check("with one it is not", who(server, None, headers), (None, []))
    for algorithm in ("sha256", "sha1"):
        token = by_hmac(b"s3cret", algorithm)(b"joe").hex()
        check(f"but with a token ({algorithm})", who(server, None, {**headers, "X-Auth-CouchDB-Token": token}), ("joe", ["a", "b"]))
        check("of that name", who(server, None, {**headers, "X-Auth-CouchDB-UserName": "jo", "X-Auth-CouchDB-Token": token}), (None, []))
    config(api, "chttpd_auth", "x_auth_username", "X-Name")
    check("headers can have other names", who(server, None, {"X-Name": "joe", "X-Auth-CouchDB-Token": token}), ("joe", []))
    session = Api(server.url, None).get("/_session", headers={"X-Name": "joe", "X-Auth-CouchDB-Token": token}).json
    check(
        "the session names the handlers",
        (session["info"]["authentication_handlers"], session["info"]["authenticated"]),
        (["jwt", "proxy", "cookie", "default"], "proxy"),
    )
    config(api, "chttpd", "authentication_handlers", "{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}")
    check("a handler that is not listed lets nobody in", who(server, None, {"X-Name": "joe", "X-Auth-CouchDB-Token": token}), (None, []))
    config(api, "chttpd", "authentication_handlers", "{chttpd_auth, default_authentication_handler}")
    value = log_in(server, "admin", "admin")
    check("nor does a cookie", who(server, None, with_cookie(value)), (None, []))
    api.close()
    server.stop()


def jwt_server(ctx, name, keys, more=""):
    return start(ctx, name, f"{FAST}[chttpd]\nauthentication_handlers = {HANDLERS}\n[jwt_keys]\n{keys}\n{more}")


def bearer(token):
    return {"Authorization": "Bearer " + token}


def test_tokens(ctx):
    server, api = jwt_server(ctx, "tokens", "hmac:_default = aGVsbG8=\nhmac:k2 = b3RoZXI=")
    check = ctx.report.equal
    exp = int(time.time()) + 600
    good = jwt({"sub": "joe", "exp": exp, "_couchdb.roles": ["r"]}, by_hmac(b"hello"), alg="HS256")
    check("a token is recognised", who(server, None, bearer(good)), ("joe", ["r"]))
    check(
        "with the key that it names",
        who(server, None, bearer(jwt({"sub": "x", "exp": exp}, by_hmac(b"other", "sha512"), alg="HS512", kid="k2"))),
        ("x", []),
    )
    admin = jwt({"sub": "joe", "exp": exp, "_couchdb.roles": ["_admin"]}, by_hmac(b"hello"), alg="HS256")
    check("_admin is an administrator", Api(server.url, None).get("/_all_dbs", headers=bearer(admin)).status, 200)
    refusals = {
        "expired": ({"sub": "joe", "exp": exp - 601}, b"hello", {"alg": "HS256"}, 401),
        "without an end": ({"sub": "joe"}, b"hello", {"alg": "HS256"}, 400),
        "of nobody": ({"exp": exp}, b"hello", {"alg": "HS256"}, 401),
        "of another key": ({"sub": "joe", "exp": exp}, b"hellO", {"alg": "HS256"}, 400),
        "of an unknown key": ({"sub": "joe", "exp": exp}, b"hello", {"alg": "HS256", "kid": "x"}, 400),
        "of another hash": ({"sub": "joe", "exp": exp}, b"hello", {"alg": "HS512"}, 400),
        "unsigned": ({"sub": "joe", "exp": exp}, b"hello", {"alg": "none"}, 400),
    }
    for what, (claims, key, header, status) in refusals.items():
        response = Api(server.url, None).get("/_session", headers=bearer(jwt(claims, by_hmac(key), **header)))
        check(f"one {what} is refused", (response.status, response.is_error_shape), (status, True))
    config(api, "jwt_auth", "required_claims", 'exp, {iss, "me"}')
    check("an issuer can be required", who(server, None, bearer(good)), None)
    mine = jwt({"sub": "joe", "exp": exp, "iss": "me", "a": {"b.c": ["p"]}}, by_hmac(b"hello"), alg="HS256")
    config(api, "jwt_auth", "roles_claim_path", "a.b\\.c")
    check("and roles be found by their path", who(server, None, bearer(mine)), ("joe", ["p"]))
    api.expect(200, "DELETE", "/_node/_local/_config/jwt_keys/hmac:_default")
    check("a key that is removed is out at once", who(server, None, bearer(mine)), None)
    server.stop()


def test_public_key_tokens(ctx):
    if shutil.which("openssl") is None:
        ctx.report.skip("tokens of public keys", "no openssl program")
        return
    folder = ctx.folder("keys")
    pairs = {kind: KeyPair(folder, kind) for kind in ("rsa", "P-256", "P-384", "P-521")}
    keys = {"rsa:r": "rsa", "ec:p256": "P-256", "ec:p384": "P-384", "ec:p521": "P-521"}
    server, _ = jwt_server(ctx, "public-keys", "\n".join(f"{name} = {pairs[kind].setting}" for name, kind in keys.items()))
    check, claims = ctx.report.equal, {"sub": "joe", "exp": int(time.time()) + 600}
    for alg, kid, pair, algorithm in [
        ("RS256", "r", "rsa", "sha256"),
        ("RS384", "r", "rsa", "sha384"),
        ("RS512", "r", "rsa", "sha512"),
        ("ES256", "p256", "P-256", "sha256"),
        ("ES384", "p384", "P-384", "sha384"),
        ("ES512", "p521", "P-521", "sha512"),
    ]:
        sign = pairs[pair].signer(algorithm)
        check(f"{alg} is recognised", who(server, None, bearer(jwt(claims, sign, alg=alg, kid=kid))), ("joe", []))
        check(f"{alg} of another message is not", who(server, None, bearer(jwt(claims, lambda m: sign(m + b"x"), alg=alg, kid=kid))), None)
        for text in (pairs[pair].public, pairs[pair].public.strip(), pairs[pair].setting):
            confused = jwt(claims, by_hmac(text.encode()), alg="HS256", kid=kid)
            check(f"the key of {alg} is no secret", who(server, None, bearer(confused)), None)
    for alg, kid, pair, algorithm in [("ES512", "p256", "P-256", "sha512"), ("ES256", "p521", "P-521", "sha256")]:
        token = jwt(claims, pairs[pair].signer(algorithm), alg=alg, kid=kid)
        check(f"{alg} goes with no key of {pair}", who(server, None, bearer(token)), None)
    check("an algorithm goes with its own keys", who(server, None, bearer(jwt(claims, pairs["rsa"].signer(), alg="ES256", kid="r"))), None)
    server.stop()


def test_lockout(ctx):
    server, api = start(ctx, "lockout")
    check = ctx.report.equal
    make_user(api, "anna")
    make_user(api, "bob")
    check("a password is right", who(server, "anna:secret"), ("anna", []))
    for n in range(5):
        who(server, f"anna:wrong{n}")
    locked = Api(server.url, "anna:secret").get("/_session")
    check(
        "after five wrong ones even that is refused",
        (locked.status, locked.json["reason"]),
        (403, "Account is temporarily locked due to multiple authentication failures"),
    )
    check("others are not", who(server, "bob:secret"), ("bob", []))
    change(api, "anna", password="new")
    check("a new password begins anew", who(server, "anna:new"), ("anna", []))
    for n in range(9):
        who(server, f"nobody{n}:x")
    check("names that do not exist lock nobody", who(server, "bob:secret"), ("bob", []))
    api.close()
    server.stop()


def test_users_databases(ctx):
    server, api = start(ctx, "peruser", FAST + "[couch_peruser]\nenable = true\nq = 1\n")
    check = ctx.report.equal
    make_user(api, "zoë")
    name = "/userdb-" + "zoë".encode().hex()
    ctx.report.check("a user gets a database", wait_until(lambda: api.get(name).status == 200, 20))
    ctx.report.check(
        "with the user as admin and member",
        wait_until(lambda: [api.get(name + "/_security").json[group].get("names") for group in ("admins", "members")] == [["zoë"], ["zoë"]], 20),
        api.get(name + "/_security"),
    )
    check("of the shards that are configured", api.get(name).json["cluster"]["q"], 1)
    check("which the user can use", Api(server.url, "zoë:secret").put(name + "/a", {}).status, 201)
    make_user(api, "bob")
    check("and another cannot", Api(server.url, "bob:secret").get(name).status, 403)
    rev = user_doc(api, "zoë")["_rev"]
    api.expect(200, "DELETE", f"/_users/org.couchdb.user:zo%C3%AB?rev={rev}")
    ctx.report.check(
        "a deleted user is taken out of it",
        wait_until(lambda: [api.get(name + "/_security").json[group]["names"] for group in ("admins", "members")] == [[], []], 20),
    )
    config(api, "couch_peruser", "delete_dbs", "true")
    rev = user_doc(api, "bob")["_rev"]
    api.expect(200, "DELETE", f"/_users/org.couchdb.user:bob?rev={rev}")
    ctx.report.check("or the database is deleted", wait_until(lambda: api.get("/userdb-" + b"bob".hex()).status == 404, 20))
    config(api, "couch_peruser", "enable", "false")
    make_user(api, "eve")
    config(api, "couch_peruser", "database_prefix", "home-")
    config(api, "couch_peruser", "enable", "true")
    ctx.report.check("users from before it was enabled get theirs", wait_until(lambda: api.get("/home-" + b"eve".hex()).status == 200, 20))
    api.close()
    server.stop()


def hidden_password(doc):
    return "password" not in doc and len(doc.get("derived_key", "")) > 20


def test_other_databases_of_users(ctx):
    """Every database called `…/_users`, or by `users_db_suffix`, keeps passwords as the one does that users log in from."""
    server, api = start(ctx, "suffix", ini=FAST + "[couchdb]\nusers_db_suffix = people\n")
    open_to_all = {"members": {"roles": []}, "admins": {"roles": []}}
    make_user(api, "eve")
    make_user(api, "mallory")
    eve = server.api(credentials="eve:secret")
    for db in ("x/_users", "people", "a/b/people"):
        path = "/" + quote(db)
        api.expect(201, "PUT", path)
        api.expect(200, "PUT", f"{path}/_security", open_to_all)
        for name in ("eve", "mallory"):
            api.expect(201, "PUT", f"{path}/org.couchdb.user:{name}", {"name": name, "password": "secret", "type": "user", "roles": []})
        doc = api.expect(200, "GET", f"{path}/org.couchdb.user:eve")
        ctx.report.check(f"{db} keeps no passwords", hidden_password(doc), doc)
        seen = [eve.get(f"{path}/org.couchdb.user:{name}").status for name in ("eve", "mallory")]
        ctx.report.equal("users see themselves in it", seen, [200, 404])
        ctx.report.equal("and not who else there is", [eve.get(f"{path}/{list}").status for list in ("_all_docs", "_changes")], [401, 401])
        other = {"name": "new", "password": "secret", "type": "user", "roles": []}
        ctx.report.equal("nor write others", eve.put(f"{path}/org.couchdb.user:new", other).status, 404)
        ctx.report.equal("nobody logs in from it", who(server, "new:secret"), None)
    for db in ("x_users", "mypeople", "_users2x"[1:]):
        api.expect(201, "PUT", f"/{db}")
        api.expect(201, "PUT", f"/{db}/org.couchdb.user:eve", {"password": "plain"})
        ctx.report.equal(f"{db} is a database like others", api.expect(200, "GET", f"/{db}/org.couchdb.user:eve").get("password"), "plain")


def test_another_database_of_users(ctx):
    """`authentication_db` is another at once when it is changed."""
    server, api = start(ctx, "moved")
    make_user(api, "ada")
    api.expect(201, "PUT", "/people")
    api.expect(201, "PUT", "/people/plain", {"password": "of old"})
    ctx.report.equal("before", who(server, "ada:secret"), ("ada", []))
    api.expect(200, "PUT", "/_node/_local/_config/chttpd_auth/authentication_db", "people")
    ctx.report.equal("the new name is told", api.get("/_session").json["info"]["authentication_db"], "people")
    ctx.report.equal("users of the old database are nobody", who(server, "ada:secret"), None)
    ben = {"name": "ben", "password": "secret", "type": "user", "roles": ["r"]}
    api.expect(201, "PUT", "/people/org.couchdb.user:ben", ben)
    doc = api.expect(200, "GET", "/people/org.couchdb.user:ben")
    ctx.report.check("passwords of the new one are hashed", hidden_password(doc), doc)
    ctx.report.equal("its users log in", (who(server, "ben:secret"), bool(log_in(server, "ben"))), (("ben", ["r"]), True))
    ctx.report.equal("its documents are checked", api.put("/people/org.couchdb.user:odd", {"name": "x", "type": "user", "roles": []}).status, 403)
    ctx.report.check("it has its design document", wait_until(lambda: api.get("/people/_design/_auth").status == 200))
    make_user(api, "carl")
    ctx.report.check("the old one keeps its rules", hidden_password(user_doc(api, "carl")))
    api.expect(200, "DELETE", "/_node/_local/_config/chttpd_auth/authentication_db")
    ctx.report.equal("and back", (who(server, "ada:secret"), who(server, "ben:secret")), (("ada", []), None))
    api.expect(201, "PUT", "/later")
    api.expect(200, "PUT", "/_node/_local/_config/couchdb/users_db_suffix", "later")
    api.expect(201, "PUT", "/later/org.couchdb.user:dan", {"name": "dan", "password": "secret", "type": "user", "roles": []})
    ctx.report.check("another suffix counts at once", hidden_password(api.expect(200, "GET", "/later/org.couchdb.user:dan")))


def test_password_rules(ctx):
    rules = '[{".{10,}", "Min length is 10 chars."}, "[A-Z]+"]'
    server, api = start(ctx, "rules", f"{FAST}password_regexp = {rules}\n")
    check = ctx.report.equal
    user = lambda password: {"name": "anna", "type": "user", "roles": [], "password": password}
    short = api.put("/_users/org.couchdb.user:anna", user("Short"))
    check("a password must match", (short.status, short.json["reason"]), (400, "Password does not conform to requirements. Min length is 10 chars."))
    check("all rules", api.put("/_users/org.couchdb.user:anna", user("longlonglong")).json["reason"], "Password does not conform to requirements.")
    check("then it is taken", api.put("/_users/org.couchdb.user:anna", user("LongLongLong")).status, 201)
    check("one that is no text is not", api.put("/_users/org.couchdb.user:eve", {**user(5), "name": "eve"}).status, 403)
    api.close()
    server.stop()


def test_conflicts(ctx):
    server, api = start(ctx, "conflicts")
    make_user(api, "anna")
    doc = user_doc(api, "anna")
    ctx.report.equal("a user is known", who(server, "anna:secret"), ("anna", []))
    other = {**doc, "_rev": "1-ffffffffffffffffffffffffffffffff", "roles": ["sneaky"]}
    api.expect(201, "POST", "/_users/_bulk_docs", {"new_edits": False, "docs": [other]})
    refused = Api(server.url, "anna:secret").get("/_session")
    ctx.report.equal(
        "one with conflicts is not",
        (refused.status, refused.json["reason"]),
        (401, "User document conflicts must be resolved before the document is used for authentication purposes."),
    )
    api.expect(200, "DELETE", f"/_users/org.couchdb.user:anna?rev={other['_rev']}")
    ctx.report.equal("until they are resolved", who(server, "anna:secret"), ("anna", []))
    api.close()
    server.stop()


def test_flood(ctx):
    """Logins take long; whoever needs none is served beside them."""
    server, api = start(ctx, "flood", "[chttpd_auth]\niterations = 600000\n[chttpd_auth_lockout]\nmode = off\n")
    make_user(api, "anna")
    wrong = [f"{name}:{n}" for n in range(30) for name in ("anna", "nobody")]
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(wrong)) as pool:
        logins = [pool.submit(who, server, credentials) for credentials in wrong]
        for _ in range(100):
            api.expect(200, "GET", "/_users/org.couchdb.user:anna")
            Api(server.url, None).get("/")
        left = sum(not login.done() for login in logins)
        ctx.report.check("a hundred requests are answered before sixty logins", left > 0, f"{left} left")
        ctx.report.check("which are all refused", all(login.result() is None for login in logins))
    ctx.report.note(f"{len(wrong)} logins at 600,000 iterations: {time.monotonic() - began:.1f} s")
    for name in ("anna", "nobody"):
        times = []
        for n in range(ctx.size(2, 10)):
            began = time.monotonic()
            who(server, f"{name}:again{n}")
            times.append(time.monotonic() - began)
        ctx.report.note(f"a wrong password of {name}: {min(times) * 1000:.0f} to {max(times) * 1000:.0f} ms")
    api.close()
    server.stop()


def test_hostile(ctx):
    """Damaged cookies, tokens and Authorization headers: nobody is let in by one, and none is more than a 4xx."""
    server, api = start(
        ctx,
        "hostile",
        f"{FAST}[chttpd]\nauthentication_handlers = {HANDLERS}\n[jwt_keys]\nhmac:_default = aGVsbG8=\n"
        "[chttpd_auth_lockout]\nmode = off\n[chttpd_auth]\nproxy_use_secret = true\n",
    )
    make_user(api, "anna")
    value = log_in(server, "anna")
    token = jwt({"sub": "joe", "exp": int(time.time()) + 6000, "_couchdb.roles": ["_admin"]}, by_hmac(b"hello"), alg="HS256")
    headers = {
        "cookie": ("Cookie", "AuthSession=" + value, 12),
        "token": ("Authorization", "Bearer " + token, 7),
        "password": ("Authorization", basic("anna:secret"), 6),
        "proxy": ("X-Auth-CouchDB-Token", by_hmac(b"x")(b"joe").hex(), 0),
    }
    for what, (header, good, fixed) in headers.items():
        wrong, own = [], Api(server.url, None)
        for _ in range(ctx.size(300, 3000)):
            bad = damage(ctx.random, good, fixed)
            if bad == good or not bad.isprintable():
                continue
            sent = {header: bad.encode("latin-1", "ignore"), **({"X-Auth-CouchDB-UserName": "joe"} if what == "proxy" else {})}
            response = own.get("/_session", headers=sent)
            if (
                response.status >= 500
                or (response.status == 200 and response.json["userCtx"]["name"] is not None and not same(what, bad, good))
                or (response.status != 200 and not response.is_error_shape)
            ):
                wrong.append((bad, response))
        ctx.report.equal(f"no damaged {what} lets anybody in or fails", wrong[:3], [])
    ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-2000:])
    api.close()
    server.stop()


def same(what, bad, good):
    """Whether a damaged text says the same: spaces, padding, or bits of base64 that nothing stands for."""
    if what == "password":
        try:
            # HMAC fills its key up with zeros, so PBKDF2 cannot tell them from a password's last bytes; nor can CouchDB.
            return base64.b64decode(bad.split()[-1] + "==").rstrip(b"\0") == base64.b64decode(good.split()[-1])
        except ValueError:
            return False
    strip = lambda text: " ".join(text.split()).rstrip("=").strip('"')  # after a scheme come any number of spaces
    first = lambda text: strip(text.split(";")[0])
    return (first(bad) if what == "cookie" else strip(bad)) == strip(good) or (what == "cookie" and strip(good) in [strip(c) for c in bad.split(";")])


def damage(random, text, fixed):
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at = random.randrange(fixed, len(text) + 1)
        piece = random.choice(["", "=", ".", ":", ";", " ", "\x7f", "é", "A" * random.randrange(1, 400), chr(random.randrange(32, 127))])
        text = text[:at] + piece + text[at + random.choice((0, 1, 1, 7)) :]
        fixed = min(fixed, len(text))
    return text


def test_secrets_in_logs(ctx):
    """Whatever happens, the log holds no password, cookie, token, key or hash."""
    ini = (
        f"[log]\nlevel = debug\n{FAST}secret = topsecret-cookie-key\n[chttpd]\nauthentication_handlers = {HANDLERS}\n"
        "[jwt_keys]\nhmac:_default = aGVsbG8tand0LWtleQ==\nrsa:bad = topsecret-bad-key\n"
    )
    server, api = start(ctx, "secrets", ini, admin="admin:topsecret-admin")
    secrets = ["topsecret", "aGVsbG8tand0LWtleQ"]
    make_user(api, "anna", "topsecret-user")
    value = log_in(server, "anna", "topsecret-user")
    exp = int(time.time()) + 600
    token = jwt({"sub": "joe", "exp": exp}, by_hmac(b"hello-jwt-key"), alg="HS256")
    proxy = by_hmac(b"topsecret-cookie-key")(b"joe").hex()
    doc = user_doc(api, "anna")
    secrets += [value, token, proxy, doc["derived_key"], doc["salt"], basic("anna:topsecret-user").split()[1]]
    for headers in (
        with_cookie(value),
        with_cookie(value[:-2] + "xx"),
        bearer(token),
        bearer(token + "x"),
        {"X-Auth-CouchDB-Token": proxy},
        {"Authorization": basic("anna:topsecret-user")},
        {"Authorization": basic("anna:topsecret-wrong")},
        {"Authorization": "Basic topsecret###"},
    ):
        Api(server.url, None).get("/_session", headers=headers)
    for body in ({"name": "anna", "password": "topsecret-wrong"}, {"name": "anna"}, ["topsecret"]):
        Api(server.url, None).post("/_session", body)
    Api(server.url, None).request("POST", "/_session", b'{"name": "anna", "password": "topsecret', {"Content-Type": "application/json"})
    config(api, "admins", "bob", "topsecret-bob")
    config(api, "chttpd_auth", "secret", "topsecret-other")
    config(api, "jwt_keys", "hmac:k", "topsecret-no-base64!")
    change(api, "anna", password="topsecret-new")
    who(server, "anna:topsecret-new")
    make_user(api, "eve", "topsecret-eve")
    server.stop()
    log = server.log()
    secrets += [base64url(secret.encode()) for secret in ("topsecret-user", "topsecret-admin")]
    ctx.report.equal("no secret is in the log", [secret for secret in secrets if secret in log], [])
    ctx.report.check("which was written", "jwt_keys" in log and len(log) > 1000, json.dumps(log[-500:]))
