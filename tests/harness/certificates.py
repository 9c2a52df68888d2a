"""Certificates made for a test with the openssl command."""

import subprocess


class Authority:
    """A certification authority in a folder of its own."""

    def __init__(self, folder, name="test authority"):
        self.folder = folder
        self.cert, self.key = folder / "authority.pem", folder / "authority-key.pem"
        openssl(
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            f"/CN={name}",
            "-keyout",
            self.key,
            "-out",
            self.cert,
            "-addext",
            "basicConstraints=critical,CA:TRUE",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
        )

    def issue(self, name, key=("ec", "ec_paramgen_curve:P-256"), serial=None):
        """A certificate for 127.0.0.1 with its key; returns the paths of both."""
        cert, private, request = (self.folder / f"{name}{ending}" for ending in (".pem", "-key.pem", ".csr"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n", encoding="ascii")
        openssl("req", "-newkey", key[0], "-pkeyopt", key[1], "-nodes", "-subj", f"/CN={name}", "-keyout", private, "-out", request)
        openssl(
            "x509",
            "-req",
            "-in",
            request,
            "-CA",
            self.cert,
            "-CAkey",
            self.key,
            "-days",
            "2",
            "-extfile",
            extensions,
            "-out",
            cert,
            *(("-set_serial", str(serial)) if serial else ("-CAcreateserial",)),
        )
        return cert, private


def encrypt(private, encrypted, password):
    openssl("pkcs8", "-topk8", "-in", private, "-out", encrypted, "-passout", f"pass:{password}")


def openssl(*arguments):
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise AssertionError(f"openssl {arguments[0]}: {done.stderr}")
