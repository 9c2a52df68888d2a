"""HTTPS beside HTTP: curl and Python as clients, keep-alive, client certificates, versions, a certificate that is replaced
while the server runs, broken handshakes, and what a server says that cannot start."""

import http.client
import json
import re
import signal
import socket
import ssl
import subprocess

import pytest

from harness.api import basic
from harness.certificates import Authority, encrypt, openssl
from harness.server import wait_until

pytestmark = pytest.mark.quick

SETTINGS = ["--set", "ssl/enable=true", "--set", "ssl/port=0"]


@pytest.fixture
def authority(ctx):
    return Authority(ctx.folder("certificates"))


@pytest.fixture
def issued(authority):
    return authority.issue("server")


@pytest.fixture
def cert(issued):
    return issued[0]


@pytest.fixture
def key(issued):
    return issued[1]


def options(**settings):
    return SETTINGS + [part for name, value in settings.items() for part in ("--set", f"ssl/{name}={value}")]


def port_of(server):
    return int(re.search(r"listening on https://127\.0\.0\.1:(\d+)", server.log()).group(1))


def context(authority, cert=None):
    context = ssl.create_default_context(cafile=str(authority.cert))
    if cert:
        context.load_cert_chain(*map(str, cert))
    return context


class Connection(http.client.HTTPSConnection):
    """One kept connection to the server's secured port."""

    def __init__(self, server, secured):
        super().__init__("127.0.0.1", port_of(server), timeout=30, context=secured)

    def ask(self, method, path, body=None, headers=None):
        sent = {"Authorization": basic("admin:admin"), "Content-Type": "application/json", **(headers or {})}
        self.request(method, path, body and json.dumps(body), {name: value for name, value in sent.items() if value})
        answer = self.getresponse()
        raw = answer.read()
        return answer, json.loads(raw) if raw else None


def test_clients(ctx, authority, cert, key):
    report = ctx.report
    with ctx.server("clients", options=options(cert_file=cert, key_file=key)) as server:
        secured = Connection(server, context(authority))
        report.equal("Python gets a document database", secured.ask("GET", "/")[1]["couchdb"], "Welcome")
        socket_before = secured.sock
        answer, _ = secured.ask("PUT", "/secured")
        report.equal("Location begins with https", answer.headers["Location"], f"https://127.0.0.1:{port_of(server)}/secured")
        for number in range(50):
            secured.ask("PUT", f"/secured/doc{number}", {"pad": "x" * 5000})
        rows = secured.ask("GET", "/secured/_all_docs?include_docs=true")[1]["rows"]
        report.check("50 writes and a long answer use one connection", len(rows) == 50 and secured.sock is socket_before, len(rows))
        report.equal("the plain port has the same databases", server.api().get("/secured/doc7").json["pad"], "x" * 5000)
        report.equal("TLS 1.3 is spoken", secured.sock.version(), "TLSv1.3")
        url = f"https://127.0.0.1:{port_of(server)}"
        for arguments in (["--http1.1"], ["--http2"], ["--tlsv1.2", "--tls-max", "1.2"], ["--tlsv1.3"]):
            done = curl("--cacert", authority.cert, "-u", "admin:admin", "-w", "\n%{http_version} %{ssl_verify_result}", *arguments, url)
            wanted = "2 0" if arguments == ["--http2"] else None
            found = done.stdout.splitlines()[-1] if done.stdout else ""
            report.check(
                f"curl {' '.join(arguments)}", done.returncode == 0 and "Welcome" in done.stdout and (wanted is None or found == wanted), done
            )
        done = curl("--cacert", authority.cert, "-u", "admin:admin", f"{url}/secured/_all_docs", f"{url}/secured/_changes", "-w", "%{num_connects} ")
        report.check("curl keeps its connection", "1 " in done.stdout and done.stdout.rstrip().endswith("0"), done.stdout[-200:])
        report.check("a client that does not know the authority refuses", curl(url).returncode == 60, curl(url))
        feed = Connection(server, context(authority))
        feed.request("GET", "/secured/_changes?feed=continuous&since=now&heartbeat=50", headers={"Authorization": basic("admin:admin")})
        lines = feed.getresponse()
        report.equal("a live feed beats", lines.readline(), b"\n")
        report.equal("the server stops with open connections", server.stop(), 0)


def curl(*arguments):
    return subprocess.run(
        ["curl", "--silent", "--show-error", "--max-time", "30", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


def test_cookies(ctx, authority, cert, key):
    report = ctx.report
    with ctx.server("cookies", options=options(cert_file=cert, key_file=key)) as server:
        login = {"name": "admin", "password": "admin"}
        answer, _ = Connection(server, context(authority)).ask("POST", "/_session", login, {"Authorization": None})
        report.check("a cookie of HTTPS is secure", "; Secure" in answer.headers["Set-Cookie"], answer.headers["Set-Cookie"])
        plain = server.api(credentials="").post("/_session", login).headers["Set-Cookie"]
        report.check("one of HTTP is not", "Secure" not in plain, plain)


def test_garbage(ctx, authority, cert, key):
    """Handshakes that are none cost no connection, no memory and nobody else."""
    report = ctx.report
    with ctx.server("garbage", options=options(cert_file=cert, key_file=key, handshake_timeout=3000)) as server:
        port, sockets = port_of(server), server.open_sockets()
        secured = Connection(server, context(authority))
        secured.ask("GET", "/")
        for number in range(200):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                sent = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\x01" * 2000, ctx.random.randbytes(300), b"\x16"][
                    number % 4
                ]
                try:
                    connection.sendall(sent)
                    if number % 3:
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(1000):
                            pass
                except OSError:
                    pass  # reset by the server, which is its right
        silent = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(50)]
        report.equal("others are served meanwhile", secured.ask("GET", "/_up")[0].status, 200)
        mute = [
            context(authority).wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=10), server_hostname="127.0.0.1") for _ in range(5)
        ]
        report.equal("so are they when handshakes are followed by nothing", secured.ask("GET", "/_up")[0].status, 200)
        for connection in mute:
            connection.close()
        ended = [connection.recv(1) for connection in silent]
        report.equal("who says nothing is hung up on after handshake_timeout", ended, [b""] * 50)
        for connection in silent:
            connection.close()
        secured.close()
        report.check("no connection is left", wait_until(lambda: server.open_sockets() <= sockets, 30), (sockets, server.open_sockets()))
        report.check("no panic", "panicked" not in server.log())


def presented(server):
    """The certificate that a new connection gets."""
    return ssl.get_server_certificate(("127.0.0.1", port_of(server)), timeout=10).strip()


def test_replaced(ctx, authority, cert, key):
    report = ctx.report
    folder = ctx.folder("replaced")
    used = (folder / "cert.pem", folder / "key.pem")
    pairs = [authority.issue(f"replaced{number}") for number in range(3)]

    def install(pair):
        for source, target in zip(pair, used, strict=True):
            target.write_bytes(source.read_bytes())

    install(pairs[0])
    with ctx.server("replaced-data", options=options(cert_file=used[0], key_file=used[1])) as server:
        old = Connection(server, context(authority))
        report.equal("the first certificate", presented(server), pairs[0][0].read_text().strip())
        old.ask("GET", "/")
        install(pairs[1])
        server.process.send_signal(signal.SIGHUP)
        report.check("SIGHUP brings the second", wait_until(lambda: presented(server) == pairs[1][0].read_text().strip(), 30), server.log()[-800:])
        report.equal("connections from before go on", old.ask("GET", "/_up")[0].status, 200)
        used[1].write_bytes(pairs[2][1].read_bytes())
        server.process.send_signal(signal.SIGHUP)
        kept = wait_until(lambda: "the old certificate stays in force" in server.log(), 30)
        report.check(
            "a key that does not match changes nothing, and the log says so",
            kept and presented(server) == pairs[1][0].read_text().strip() and "does not match" in server.log(),
            server.log()[-800:],
        )
        install(pairs[2])
        server.api().expect(200, "PUT", "/_node/_local/_config/ssl/handshake_timeout", "9000")
        report.check(
            "a setting under [ssl] has them read too",
            wait_until(lambda: presented(server) == pairs[2][0].read_text().strip(), 30),
            server.log()[-800:],
        )


def test_client_certificates(ctx, authority, cert, key):
    report = ctx.report
    mine = authority.issue("client")
    strange = Authority(ctx.folder("strange"), "strange authority").issue("stranger")
    settings = {"cert_file": cert, "key_file": key, "cacert_file": authority.cert, "verify_ssl_certificates": "true"}

    def outcome(server, presented):
        try:
            return Connection(server, context(authority, presented)).ask("GET", "/_up")[0].status
        except (OSError, http.client.HTTPException):
            return "refused"

    for required in ("false", "true"):
        with ctx.server(f"clients-{required}", options=options(**settings, fail_if_no_peer_cert=required)) as server:
            found = {name: outcome(server, pair) for name, pair in {"mine": mine, "strange": strange, "none": None}.items()}
            wanted = {"mine": 200, "strange": "refused", "none": "refused" if required == "true" else 200}
            report.equal(f"with fail_if_no_peer_cert = {required}", found, wanted)


def test_versions(ctx, authority, cert, key):
    report = ctx.report
    with ctx.server(
        "versions", options=options(cert_file=cert, key_file=key, tls_versions="['tlsv1.2']", ciphers="ECDHE-ECDSA-AES256-GCM-SHA384:AES128-SHA")
    ) as server:
        secured = Connection(server, context(authority))
        secured.ask("GET", "/_up")
        report.equal(
            "version and suite are the configured ones",
            (secured.sock.version(), secured.sock.cipher()[0]),
            ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        )
        url = f"https://127.0.0.1:{port_of(server)}/_up"
        report.check("another version is refused", curl("--cacert", authority.cert, "--tlsv1.3", url).returncode == 35)
        report.check("what is not supported is said", "AES128-SHA is not supported" in server.log(), server.log()[:1500])


def test_keys(ctx, authority, cert, key):
    """Kinds of keys, and forms they are kept in."""
    report = ctx.report
    folder = ctx.folder("keys")
    rsa_cert, rsa_key = authority.issue("rsa", ("rsa", "rsa_keygen_bits:2048"))
    openssl("rsa", "-in", rsa_key, "-traditional", "-out", folder / "pkcs1.pem")
    openssl("ec", "-in", key, "-out", folder / "sec1.pem")
    encrypt(key, folder / "encrypted.pem", "open sesame")
    encrypt(rsa_key, folder / "rsa-encrypted.pem", "open sesame")
    password = {"password": "open sesame"}
    for name, pair, more in [
        ("RSA", (rsa_cert, rsa_key), {}),
        ("RSA in PKCS #1", (rsa_cert, folder / "pkcs1.pem"), {}),
        ("EC in SEC 1", (cert, folder / "sec1.pem"), {}),
        ("encrypted", (cert, folder / "encrypted.pem"), password),
        ("encrypted RSA", (rsa_cert, folder / "rsa-encrypted.pem"), password),
    ]:
        with ctx.server(f"key {name}", options=options(cert_file=pair[0], key_file=pair[1], **more)) as server:
            report.equal(f"a key: {name}", Connection(server, context(authority)).ask("GET", "/_up")[0].status, 200)
            report.check("its password is not in the log", "sesame" not in server.log(), "found", quiet=True)


def test_refused(ctx, authority, cert, key):
    report = ctx.report
    folder = ctx.folder("refused")
    other = authority.issue("other")[1]
    encrypt(key, folder / "encrypted.pem", "right")
    openssl("ec", "-in", key, "-aes128", "-passout", "pass:right", "-out", folder / "legacy.pem")
    (folder / "empty.pem").write_text("")
    (folder / "cut.pem").write_text(cert.read_text()[:200])
    none = folder / "none.pem"
    for name, settings, words in [
        ("no certificate set", {"key_file": key}, ["cert_file is not set"]),
        ("no key set", {"cert_file": cert}, ["key_file is not set"]),
        ("a certificate that is not there", {"cert_file": none, "key_file": key}, ["cert_file", str(none), "No such file"]),
        ("a key that is not there", {"cert_file": cert, "key_file": none}, ["key_file", str(none), "No such file"]),
        ("an empty certificate", {"cert_file": folder / "empty.pem", "key_file": key}, ["cert_file", "no certificate"]),
        ("a cut certificate", {"cert_file": folder / "cut.pem", "key_file": key}, ["cert_file", "cut.pem"]),
        ("an empty key", {"cert_file": cert, "key_file": folder / "empty.pem"}, ["key_file", "empty.pem"]),
        ("a certificate as key", {"cert_file": cert, "key_file": cert}, ["key_file", "server.pem"]),
        ("another certificate's key", {"cert_file": cert, "key_file": other}, ["key_file does not match cert_file"]),
        ("an encrypted key without a password", {"cert_file": cert, "key_file": folder / "encrypted.pem"}, ["[ssl] password has to be set"]),
        ("a wrong password", {"cert_file": cert, "key_file": folder / "encrypted.pem", "password": "wrong"}, ["[ssl] password does not decrypt it"]),
        ("an old way to encrypt", {"cert_file": cert, "key_file": folder / "legacy.pem", "password": "right"}, ["openssl pkcs8 -topk8"]),
        ("no authority for clients", {"cert_file": cert, "key_file": key, "verify_ssl_certificates": "true"}, ["cacert_file is not set"]),
        ("only old versions", {"cert_file": cert, "key_file": key, "tls_versions": "[tlsv1]"}, ["tls_versions", "tlsv1.3"]),
        ("only unknown suites", {"cert_file": cert, "key_file": key, "ciphers": "AES128-SHA"}, ["ciphers", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]),
        ("a port that is taken", {"cert_file": cert, "key_file": key, "port": "taken"}, ["cannot listen on"]),
    ]:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            if settings.get("port"):
                settings = {**settings, "port": taken.getsockname()[1]}
            done = subprocess.run(
                [ctx.binary, "serve", "--data", ctx.root / "refused-data", "--port", "0", "--admin", "a:b", *options(**settings)],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        said = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
        ok = done.returncode in (1, 2) and all(word in said for word in words) and "listening on http" not in done.stdout
        report.check(
            f"no start with {name}", ok and "right" not in done.stderr.replace("copyright", ""), (done.returncode, done.stdout, done.stderr[-600:])
        )
