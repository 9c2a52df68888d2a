"""CouchDB's query server for Python 3: the line protocol on standard input and output.

Runs map and reduce functions, as `couchpy` of the package CouchDB does. A source defines a function; a map function yields
pairs of key and value, a reduce function takes keys and values, and perhaps `rereduce`. `log(value)` writes to the log of the
database server. Needs nothing but Python 3.6 or newer, also PyPy.
"""

import json
import os
import sys
import time
from types import FunctionType

# Answers wait until more input is needed, there are this many bytes of them, or one of them is this old: their reader sends
# many documents ahead, and counts the time from answer to answer.
OUTPUT_BYTES_MAX = 1 << 16
OUTPUT_AGE_S_MAX = 0.005
READ_BYTES = 1 << 16


class Lines:
    """The protocol's two ends. What functions print goes to the standard error, and they have no standard input."""

    def __init__(self):
        self.input, self.output = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        self.unsent, self.unsent_bytes, self.sent_at = [], 0, time.monotonic()

    def __iter__(self):
        rest = []
        while True:
            self.flush()
            some = os.read(self.input, READ_BYTES)
            if not some:
                return
            *whole, last = some.split(b"\n")
            for line in whole:
                if rest:
                    rest.append(line)
                    line, rest = b"".join(rest), []
                if line.strip():
                    yield line
            if last:
                rest.append(last)

    def write(self, text):
        line = _utf8(text) + b"\n"
        self.unsent.append(line)
        self.unsent_bytes += len(line)
        if self.unsent_bytes >= OUTPUT_BYTES_MAX or time.monotonic() - self.sent_at >= OUTPUT_AGE_S_MAX:
            self.flush()

    def flush(self):
        left = memoryview(b"".join(self.unsent))
        self.unsent, self.unsent_bytes = [], 0
        while left:
            left = left[os.write(self.output, left) :]
        self.sent_at = time.monotonic()


def _utf8(text):
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        # A string with half of a surrogate pair.
        return json.dumps(json.loads(text)).encode("ascii")


# JSON text. NaN, infinities, and what is not JSON raise ValueError or TypeError.
encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

# What a function may raise without ending the process.
FAILURES = (Exception, SystemExit)


class CompilationError(Exception):
    """A source that does not define a function."""


class Server:
    """The state that commands change."""

    def __init__(self, lines):
        self.lines = lines
        self.maps = []
        # The reduce function that was used last, and its source.
        self.reducer = (None, None)

    def log(self, message):
        text = message if isinstance(message, str) else encode(message)
        self.lines.write(encode(["log", text]))

    def compile(self, source):
        names = {"__name__": "settee_function", "log": self.log}
        try:
            exec(compile(source, "<function>", "exec"), names)
        except FAILURES as error:
            raise CompilationError(f"{type(error).__name__}: {error}") from None
        # Of several, the last one: those before may be its helpers.
        functions = [value for name, value in names.items() if name != "log" and type(value) is FunctionType]
        own = [function for function in functions if function.__module__ == "settee_function"]
        if not own:
            raise CompilationError("the source must define a function, such as: def fun(doc): yield doc['type'], 1")
        return own[-1]

    def reset(self, *_config):
        del self.maps[:]
        return "true"

    def add_lib(self, *_lib):
        return "true"

    def add_fun(self, source):
        try:
            self.maps.append(self.compile(source))
        except CompilationError as error:
            return encode(["error", "map_compilation_error", str(error)])
        return "true"

    def map_doc(self, doc):
        return "[{}]".format(",".join([self.rows(function, doc) for function in self.maps]))

    def rows(self, function, doc):
        try:
            emitted = function(doc)
            return "[]" if emitted is None else encode([[key, value] for key, value in emitted])
        except FAILURES:
            self.log(_trace())
            return "[]"

    def reduce(self, sources, rows):
        keys, values = ([row[0] for row in rows], [row[1] for row in rows])
        return self.reduced(sources, keys, values, False)

    def rereduce(self, sources, values):
        return self.reduced(sources, None, values, True)

    def reduced(self, sources, keys, values, is_rereduce):
        results = []
        for source in sources:
            try:
                if self.reducer[0] != source:
                    self.reducer = (source, self.compile(source))
            except CompilationError as error:
                return encode(["error", "reduce_compilation_error", str(error)])
            function = self.reducer[1]
            arguments = [keys, values, is_rereduce][: 3 if _takes_three(function) else 2]
            try:
                results.append(encode(function(*arguments)))
            except FAILURES as error:
                self.log(_trace())
                return encode(["error", type(error).__name__, str(error)])
        return "[true,[{}]]".format(",".join(results))

    def ddoc(self, *_call):
        return encode(["error", "not_implemented", "In Python there are map and reduce functions only."])


def _takes_three(function):
    code = function.__code__
    return code.co_argcount >= 3 or bool(code.co_flags & 0x04)


def _trace():
    import traceback

    return traceback.format_exc()


# Levels of nested JSON that Settee stores, and some of Python's own.
RECURSION_MAX = 5000


def main():
    sys.setrecursionlimit(RECURSION_MAX)
    lines = Lines()
    server = Server(lines)
    for line in lines:
        try:
            command, *arguments = json.loads(line.decode("utf-8"))
        except RecursionError:
            lines.write(encode(["error", "too_deep", "a value nests too deeply for Python"]))
            continue
        method = {
            "map_doc": server.map_doc,
            "reset": server.reset,
            "add_fun": server.add_fun,
            "add_lib": server.add_lib,
            "reduce": server.reduce,
            "rereduce": server.rereduce,
            "ddoc": server.ddoc,
        }.get(command)
        if method is None:
            lines.write(encode(["fatal", "unknown_command", f"unknown command '{command}'"]))
            lines.flush()
            sys.exit(1)
        lines.write(method(*arguments))
    lines.flush()


if __name__ == "__main__":
    main()
