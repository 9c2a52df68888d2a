#!/usr/bin/env python3
"""SQLite's FTS5 as a peer of `settee bench`: a line of JSON is an order, and a line of JSON its answer.

usage: fts5.py --port PORT --folder FOLDER

`scripts/bench peers` starts it. It serves one connection at a time, on 127.0.0.1, since SQLite has one writer and Python one thread at work.
"""

import argparse
import json
import pathlib
import socket
import sqlite3

# A write is on the disk when it is answered, as with the server and its other peers.
PRAGMAS = {"journal_mode": "WAL", "synchronous": "FULL", "cache_size": "-131072"}
HITS = 25
# It splits texts into words and stems none, as Lucene's standard analyzer does.
TOKENIZER = "unicode61"


class Database:
    """Texts by their ids, and an index of their words."""

    def __init__(self, folder):
        self.connection = sqlite3.connect(pathlib.Path(folder) / "texts.sqlite", isolation_level=None)
        for name, value in PRAGMAS.items():
            self.connection.execute(f"PRAGMA {name} = {value}")

    def about(self, order):
        settings = ", ".join(f"{name}={value}" for name, value in PRAGMAS.items())
        return {"version": sqlite3.sqlite_version, "settings": f"{settings}, tokenize={TOKENIZER}"}

    def empty(self, order):
        self.connection.execute("DROP TABLE IF EXISTS texts")
        self.connection.execute("CREATE TABLE texts (id TEXT PRIMARY KEY, words TEXT NOT NULL) WITHOUT ROWID")
        return {}

    def texts(self, order):
        self.connection.execute("BEGIN")
        self.connection.executemany("INSERT INTO texts VALUES (?, ?)", order["texts"])
        self.connection.execute("COMMIT")
        return {}

    def build(self, order):
        """Everything that a search needs of the texts, in one transaction."""
        self.connection.execute("BEGIN")
        self.connection.execute("DROP TABLE IF EXISTS searched")
        self.connection.execute(f"CREATE VIRTUAL TABLE searched USING fts5(id UNINDEXED, words, tokenize = '{TOKENIZER}')")
        self.connection.execute("INSERT INTO searched SELECT id, words FROM texts")
        self.connection.execute("COMMIT")
        return {}

    def search(self, order):
        rows = self.connection.execute("SELECT id FROM searched WHERE searched MATCH ? ORDER BY rank LIMIT ?", (order["query"], HITS))
        return {"ids": [row[0] for row in rows]}

    def count(self, order):
        return {"hits": self.connection.execute("SELECT count(*) FROM searched WHERE searched MATCH ?", (order["query"],)).fetchone()[0]}

    def write(self, order):
        """One more text, which is kept under its id and can be found, in one transaction."""
        with self.connection:
            self.connection.execute("BEGIN")
            for table in ("texts", "searched"):
                self.connection.execute(f"INSERT INTO {table} VALUES (?, ?)", (order["id"], order["text"]))
        return {}


ORDERS = {name: getattr(Database, name) for name in ("about", "empty", "texts", "build", "search", "count", "write")}


def answer(database, line):
    order = json.loads(line)
    try:
        return ORDERS[order["do"]](database, order)
    except sqlite3.Error as error:
        return {"error": str(error)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", required=True)
    options = parser.parse_args()
    database = Database(options.folder)
    with socket.create_server(("127.0.0.1", options.port)) as listener:
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    connection.sendall(json.dumps(answer(database, line)).encode() + b"\n")


if __name__ == "__main__":
    main()
