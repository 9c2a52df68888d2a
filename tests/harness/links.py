"""Proxies between the processes of a cluster, which can take any two of them apart. A process of its own (`Links`).

A door is a port before a process's own; whoever wants that process goes through it. Whose connection it is, is told by who owns
its other end (/proc), so one door tells its visitors apart. Two that are cut cannot exchange a byte: either all of it stays where it
is, as when packets are lost, or connections are reset. What nobody is known to own passes.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time

CHUNK = 1 << 16
# A process is named a moment after its start. While somebody is cut off, nobody unnamed passes sooner than this.
OWNER_WAIT_S, OWNER_WAIT_CUT_S = 0.5, 5
PR_SET_PDEATHSIG = 1
TIMEOUT_S = 10


class Links:
    """`doors`: name -> (port, the port behind it)."""

    def __init__(self, doors):
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, bufsize=1
        )
        self._say("open", doors)

    def own(self, name, pid):
        """From now on this process is the one with this name."""
        self._say("own", name, pid)

    def cut(self, name, others, resets=False):
        self._say("cut", name, list(others), resets)

    def heal(self):
        """Nobody is cut off. What was kept back goes on."""
        self._say("heal")

    def stop(self):
        self.process.kill()
        self.process.wait()

    def _say(self, *command):
        self.process.stdin.write(json.dumps(command) + "\n")
        answer = self.process.stdout.readline().strip()
        if answer != "ok":
            raise RuntimeError(f"links: {command[0]}: {answer or 'it has ended'}")


class Side:
    """One end of a connection: what was read from it and is to be written to the other."""

    def __init__(self, sock):
        self.sock, self.other, self.link = sock, None, None
        self.waiting = b""
        self.is_at_end = False
        self.events = 0


class Link:
    def __init__(self, visitor, host, target):
        self.sides = (Side(visitor), Side(host))
        self.sides[0].other, self.sides[1].other = self.sides[1], self.sides[0]
        self.sides[0].link = self.sides[1].link = self
        self.target, self.owner = target, None
        self.opened = time.monotonic()
        self.is_known = False


class Switch:
    """The process that passes the bytes."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.links, self.strangers = set(), set()
        self.pids, self.behind, self.cuts = {}, {}, {}

    def open(self, doors):
        for name, (port, behind) in doors.items():
            listener = socket.create_server(("127.0.0.1", port), backlog=128)
            listener.setblocking(False)
            self.behind[name] = behind
            self.selector.register(listener, selectors.EVENT_READ, name)

    def own(self, name, pid):
        self.pids[name] = pid

    def cut(self, name, others, resets):
        for other in others:
            self.cuts[frozenset((name, other))] = resets
        self.look_at_all()

    def heal(self):
        self.cuts.clear()
        self.look_at_all()

    def look_at_all(self):
        for link in list(self.links):
            # On a busy machine a process is named later than its link was given up on.
            if link.is_known and link.owner is None:
                link.owner = self.owner_of(link.sides[0].sock)
            if self.cut_of(link) is True:
                self.close(link, resets=True)
            else:
                self.watch(link)

    def cut_of(self, link):
        """None when it is whole; else whether it is reset."""
        return self.cuts.get(frozenset((link.owner, link.target)))

    def accept(self, listener, target):
        visitor, _ = listener.accept()
        visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        visitor.setblocking(False)
        host = socket.socket()
        host.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(visitor, host, target)
        self.links.add(link)
        self.strangers.add(link)
        self.know(link)

    def know(self, link):
        """A link is used once it is known whose it is."""
        owner = self.owner_of(link.sides[0].sock)
        if owner is None and time.monotonic() < link.opened + (OWNER_WAIT_CUT_S if self.cuts else OWNER_WAIT_S):
            return
        self.strangers.discard(link)
        link.owner, link.is_known = owner, True
        if self.cut_of(link) is True:
            return self.close(link, resets=True)
        try:
            link.sides[1].sock.connect(("127.0.0.1", self.behind[link.target]))
        except OSError:
            return self.close(link, resets=True)
        link.sides[1].sock.setblocking(False)
        self.watch(link)

    def owner_of(self, visitor):
        try:
            port = visitor.getpeername()[1]
        except OSError:
            return None
        inode = inode_of(port)
        if inode is None:
            return None
        for name, pid in self.pids.items():
            if owns(pid, inode):
                return name
        return None

    def watch(self, link):
        is_open = link.is_known and self.cut_of(link) is None
        for side in link.sides:
            wanted = 0
            if is_open and not side.waiting and not side.is_at_end:
                wanted |= selectors.EVENT_READ
            if is_open and side.other.waiting:
                wanted |= selectors.EVENT_WRITE
            if wanted == side.events:
                continue
            if not side.events:
                self.selector.register(side.sock, wanted, side)
            elif not wanted:
                self.selector.unregister(side.sock)
            else:
                self.selector.modify(side.sock, wanted, side)
            side.events = wanted

    def close(self, link, resets=False):
        self.links.discard(link)
        self.strangers.discard(link)
        for side in link.sides:
            if side.events:
                self.selector.unregister(side.sock)
                side.events = 0
            if resets:
                with contextlib.suppress(OSError):
                    side.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            side.sock.close()

    def serve(self, side, events):
        link = side.link
        if link not in self.links or self.cut_of(link) is not None:
            return
        try:
            if events & selectors.EVENT_WRITE:
                self.flush(side.other)
            if events & selectors.EVENT_READ and not side.waiting:
                side.waiting = side.sock.recv(CHUNK)
                side.is_at_end = not side.waiting
                if side.is_at_end:
                    side.other.sock.shutdown(socket.SHUT_WR)
                else:
                    self.flush(side)
        except BlockingIOError:
            pass
        except OSError:
            return self.close(link, resets=True)
        if all(each.is_at_end and not each.waiting for each in link.sides):
            return self.close(link)
        self.watch(link)

    def flush(self, side):
        try:
            sent = side.other.sock.send(side.waiting)
        except BlockingIOError:
            return
        side.waiting = side.waiting[sent:]

    def run(self):
        self.selector.register(sys.stdin.buffer.raw, selectors.EVENT_READ, self.commands)
        self.said = b""
        while True:
            for key, events in self.selector.select(0.02 if self.strangers else None):
                if isinstance(key.data, Side):
                    self.serve(key.data, events)
                elif isinstance(key.data, str):
                    with contextlib.suppress(BlockingIOError):
                        self.accept(key.fileobj, key.data)
                else:
                    self.commands()
            for link in list(self.strangers):
                self.know(link)

    def commands(self):
        said = os.read(0, CHUNK)
        if not said:
            sys.exit(0)
        *lines, self.said = (self.said + said).split(b"\n")
        for line in lines:
            name, *arguments = json.loads(line)
            try:
                getattr(self, name)(*arguments)
                answer = "ok"
            except Exception as error:
                answer = repr(error)
            print(answer, flush=True)


def inode_of(port):
    """Of the socket of this machine that has this local port and is connected to one of ours."""
    wanted = f"0100007F:{port:04X}"
    with open("/proc/self/net/tcp", encoding="ascii") as lines:
        for line in lines:
            fields = line.split()
            if fields[1] == wanted and fields[9] != "0":
                return fields[9]
    return None


def owns(pid, inode):
    wanted = f"socket:[{inode}]"
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for name in names:
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{name}") == wanted:
                return True
    return False


if __name__ == "__main__":
    sys.path.pop(0)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    pathlib.Path("/proc/self/comm").write_text("settee-links", encoding="ascii")
    Switch().run()
