"""A TCP proxy that loses connections at random: what a mobile network does to a replication.

    with FlakyProxy(server.url, random, mean_bytes=200_000) as proxy:
        ...                  # talk to proxy.url instead of server.url
        proxy.calm()         # from now on nothing is cut
        proxy.cuts           # how many connections were lost

Each connection (or one in so many: `cut_share`) gets a budget of bytes, both directions together, drawn from an
exponential distribution. When it is spent, the connection is cut in the middle of whatever was passing: one time in two
with a reset, otherwise with an early end. A target that is down looks as it would without the proxy: the
client's connection is accepted and reset at once.
"""

import asyncio
import socket
import struct
import threading
import urllib.parse

CHUNK = 16 * 1024
START_TIMEOUT_S = 10


class FlakyProxy:
    """`target` is a URL or (host, port); `random` a random.Random; `mean_bytes` None never cuts by itself.

    `cut_share` is the share of connections that are cut at all. Clients that open one for every request and send
    large ones need some that last.
    """

    def __init__(self, target, random, mean_bytes=200_000, cut_share=1.0):
        if isinstance(target, str):
            parts = urllib.parse.urlsplit(target)
            target = (parts.hostname, parts.port)
        self.target, self.mean_bytes, self.cut_share, self._random = target, mean_bytes, cut_share, random
        self.port = None
        self.connections = 0
        self.cuts = 0
        self.bytes = 0
        self._open = set()
        self._refusing = False
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def url_with(self, credentials):
        """`credentials` is NAME:PASSWORD."""
        return f"http://{credentials}@127.0.0.1:{self.port}"

    def start(self):
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise RuntimeError("the proxy did not start")
        return self

    def stop(self):
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(START_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_TIMEOUT_S)

    def calm(self):
        """No more cuts; connections that are open keep their budget no longer."""
        self._call(self._calm)

    def cut_all(self):
        """Cuts every open connection now; returns how many there were."""
        return self._call(self._cut_all)

    def refuse(self, refusing=True):
        """While refusing, new connections are reset and the open ones are cut: the network is gone."""
        self._call(lambda: self._refuse(refusing))

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def _call(self, act):
        async def run():
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(START_TIMEOUT_S)

    def _serve(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._ready.set()
        self._loop.run_forever()
        self._loop.close()

    async def _listen(self):
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, limit=CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accepted(self, reader, writer):
        self.connections += 1
        if self._refusing:
            _reset(writer)
            return
        try:
            target_reader, target_writer = await asyncio.open_connection(*self.target, limit=CHUNK)
        except OSError:
            _reset(writer)
            return
        if self._refusing:
            _reset(writer)
            _reset(target_writer)
            return
        pair = _Pair(writer, target_writer, self._budget())
        self._open.add(pair)
        try:
            await asyncio.gather(self._pump(pair, reader, target_writer), self._pump(pair, target_reader, writer))
        finally:
            self._open.discard(pair)
            pair.close()

    async def _pump(self, pair, reader, writer):
        try:
            while chunk := await reader.read(CHUNK):
                self.bytes += len(chunk)
                if pair.budget is not None and pair.budget < len(chunk):
                    writer.write(chunk[: pair.budget])
                    self._cut(pair)
                    return
                if pair.budget is not None:
                    pair.budget -= len(chunk)
                writer.write(chunk)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            pair.close()  # one side went by itself, and so goes the other

    def _budget(self):
        if self.mean_bytes is None or self._random.random() >= self.cut_share:
            return None
        return int(self._random.expovariate(1 / self.mean_bytes))

    def _cut(self, pair):
        self.cuts += 1
        if self._random.random() < 0.5:
            pair.reset()
        else:
            pair.close()

    def _cut_all(self):
        pairs = list(self._open)
        for pair in pairs:
            self._cut(pair)
        return len(pairs)

    def _calm(self):
        self.mean_bytes = None
        for pair in self._open:
            pair.budget = None

    def _refuse(self, refusing):
        self._refusing = refusing
        if refusing:
            self._cut_all()

    async def _end(self):
        self._server.close()
        for pair in list(self._open):
            pair.reset()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)


class _Pair:
    def __init__(self, client, target, budget):
        self.client, self.target, self.budget = client, target, budget

    def close(self):
        for writer in (self.client, self.target):
            writer.close()

    def reset(self):
        for writer in (self.client, self.target):
            _reset(writer)


def _reset(writer):
    """An RST instead of an orderly end: linger of 0 seconds, and away with what is not sent."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() != -1:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
