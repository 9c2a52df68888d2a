"""Session cookies and JSON Web Tokens, made by hand. Public-key signatures come from the openssl program."""

import base64
import hashlib
import hmac
import json
import subprocess


def base64url(raw):
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def cookie(name, salt, secret, issued, algorithm="sha256"):
    """The value of an AuthSession cookie, as CouchDB makes it."""
    message = f"{name}:{issued:X}".encode()
    mac = hmac.new((secret + salt).encode(), message, getattr(hashlib, algorithm)).digest()
    return base64url(message + b":" + mac)


def decoded(value):
    """Name, time and MAC of a cookie."""
    raw = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    name, issued, mac = raw.split(b":", 2)
    return name.decode(), int(issued, 16), mac


def jwt(claims, sign, **header):
    header = {"typ": "JWT", **header}
    message = base64url(json.dumps(header).encode()) + "." + base64url(json.dumps(claims).encode())
    return message + "." + base64url(sign(message.encode()))


def by_hmac(secret, algorithm="sha256"):
    return lambda message: hmac.new(secret, message, getattr(hashlib, algorithm)).digest()


class KeyPair:
    """A key pair of openssl. `kind`: "rsa", "P-256", "P-384" or "P-521"."""

    def __init__(self, folder, kind):
        self.path, self.kind = folder / f"{kind}.pem", kind
        options = ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"] if kind == "rsa" else ["EC", "-pkeyopt", f"ec_paramgen_curve:{kind}"]
        openssl("genpkey", "-algorithm", *options, "-out", str(self.path))
        self.public = openssl("pkey", "-in", str(self.path), "-pubout").decode()

    @property
    def setting(self):
        return self.public.strip().replace("\n", "\\n")

    def signer(self, algorithm="sha256"):
        def sign(message):
            der = openssl("dgst", f"-{algorithm}", "-sign", str(self.path), given=message)
            return der if self.kind == "rsa" else fixed(der, {"P-256": 32, "P-384": 48, "P-521": 66}[self.kind])

        return sign


def fixed(der, size):
    """An ECDSA signature as JWT has it: both numbers, each of `size` bytes."""
    # The length of the whole has a second byte when it is long.
    numbers, at = [], 3 if der[1] & 0x80 else 2
    for _ in range(2):
        length = der[at + 1]
        numbers.append(int.from_bytes(der[at + 2 : at + 2 + length], "big").to_bytes(size, "big"))
        at += 2 + length
    return b"".join(numbers)


def openssl(*arguments, given=None):
    return subprocess.run(["openssl", *arguments], input=given, capture_output=True, check=True).stdout
