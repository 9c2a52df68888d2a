"""A client that speaks TLS with a proxy on this machine."""

import http.client
import ssl
import urllib.parse

from harness.api import Api


class SecuredApi(Api):
    def __init__(self, url, authority, credentials="admin:admin", timeout=60):
        super().__init__(url, credentials, timeout)
        self.trusted = ssl.create_default_context(cafile=str(authority.cert))
        self.prefix = urllib.parse.urlsplit(url).path.rstrip("/")

    def request(self, method, path, body=None, headers=None):
        if self.connection is None:
            self.connection = http.client.HTTPSConnection(self.host, self.port, timeout=self.timeout, context=self.trusted)
        return super().request(method, self.prefix + path, body, headers)
