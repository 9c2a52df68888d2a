"""A TCP proxy that is no good: it cuts connections and garbles bytes, by a seed. What it passes on, it counts."""

import random
import socket
import threading

CHUNK = 16 << 10


class FlakyProxy:
    """Between a client and `host:port`. `cut` and `garble` are the chances for each chunk that passes."""

    def __init__(self, port, seed, cut=0.0, garble=0.0):
        self.to, self.cut, self.garble = ("127.0.0.1", port), cut, garble
        self.random, self.lock = random.Random(seed), threading.Lock()
        self.cuts = self.garbled = self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def behave(self):
        self.cut = self.garble = 0.0

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                server = socket.create_connection(self.to, timeout=10)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source, sink):
        try:
            while True:
                data = source.recv(CHUNK)
                if not data:
                    break
                with self.lock:
                    cut, garble = self.random.random() < self.cut, self.random.random() < self.garble
                    at = self.random.randrange(len(data))
                    self.cuts += cut
                    self.garbled += garble
                if garble:
                    # No byte of UTF-8: whoever looks can tell.
                    data = data[:at] + b"\xff" + data[at + 1 :]
                if cut:
                    sink.sendall(data[:at])
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()
