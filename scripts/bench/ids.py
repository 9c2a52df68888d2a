"""The algorithms of ids that the server generates (`[uuids] algorithm`): time to write, and room on disk.

One server writes the same documents without ids into a new database for each algorithm, by turns, in bulks of 1,000 over one connection.
After each load the database is compacted. A row's figure is the median of the rounds, with the lowest and the highest. Processor time is
that of the server, from the first bulk to the end of the compaction.
"""

import json
import os
import pathlib
import statistics
import tempfile
import time

from instances import Settee
from ten_million import Client

BULK = 1_000


def add_options(parser):
    parser.add_argument("--documents", type=int, default=200_000, help="of each algorithm and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--algorithms", nargs="+", default=["sequential", "uuid_v7", "utc_random", "uuid_v4", "random"])


def run(options, _):
    rows = {}
    with tempfile.TemporaryDirectory(prefix="settee-bench-ids-") as folder, Settee(folder, pathlib.Path(options.binary).resolve()) as server:
        client = Client(server.port, server.authorization)
        for turn in range(options.rounds):
            for algorithm in options.algorithms:
                row = measure(server, client, algorithm, f"{algorithm}{turn}", options.documents)
                rows.setdefault(algorithm, []).append(row)
                print(f"round {turn + 1}, {algorithm}: " + ", ".join(f"{value:,.1f} {name}" for name, value in row.items()), flush=True)
    options.keep(rows)
    names = list(next(iter(rows.values()))[0])
    print("\n| algorithm | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for algorithm, measured in rows.items():
        cells = []
        for name in names:
            values = [row[name] for row in measured]
            cells.append(f"{statistics.median(values):,.1f} ({min(values):,.1f}–{max(values):,.1f})")
        print(f"| `{algorithm}` | " + " | ".join(cells) + " |")


def measure(server, client, algorithm, database, documents):
    client.ask("PUT", "/_node/_local/_config/uuids/algorithm", json.dumps(algorithm))
    client.ask("PUT", f"/{database}")
    before = processor_s(server)
    began = time.monotonic()
    for first in range(0, documents, BULK):
        docs = [{"number": n, "text": f"the text of document {n % 997}"} for n in range(first, min(first + BULK, documents))]
        client.ask("POST", f"/{database}/_bulk_docs", {"docs": docs})
    wrote = time.monotonic() - began
    began = time.monotonic()
    client.ask("POST", f"/{database}/_compact")
    while json.loads(client.ask("GET", f"/{database}"))["compact_running"]:
        time.sleep(0.02)
    compacted = time.monotonic() - began
    sizes = json.loads(client.ask("GET", f"/{database}"))["sizes"]
    took = processor_s(server) - before
    # The next one is to find the store as this one did.
    client.ask("DELETE", f"/{database}")
    return {
        "1,000 documents/s": documents / wrote / 1_000,
        "bytes on disk a document": sizes["file"] / documents,
        "s compaction": compacted,
        "s processor": took,
    }


def processor_s(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(ticks) for ticks in fields[11:13]) / os.sysconf("SC_CLK_TCK")
