"""Rows of a stopped server's store, planted and removed: as records of its engine's log, which its next start replays.

The format is RocksDB's: blocks of 32 KiB with records `crc32c (masked) | length | type | payload`, whose payload is a batch: a sequence number, a
count, and operations. Column families are numbered in the order in which the store makes them.
"""

import pathlib
import struct

BLOCK = 32 << 10
HEADER = 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4

FAMILIES = (
    "default",
    "by_id",
    "by_seq",
    "bodies",
    "superseded",
    "local",
    "purges",
    "summary",
    "index_rows",
    "index_back",
    "index_blocks",
    "attachments",
)

DELETION = {0: 0x00, "cf": 0x04}
VALUE = {0: 0x01, "cf": 0x05}


def crc32c_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


TABLE = crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def fragment(payload, kind):
    crc = crc32c(bytes([kind]) + payload)
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<IHB", masked, len(payload), kind) + payload


def record(payload, at):
    """A record that begins at this place of a log, over as many blocks as it needs."""
    out, first = b"", True
    while True:
        left = BLOCK - (at + len(out)) % BLOCK
        if left < HEADER:
            out += bytes(left)
            continue
        part, payload = payload[: left - HEADER], payload[left - HEADER :]
        kind = (FULL if first else LAST) if not payload else (FIRST if first else MIDDLE)
        out, first = out + fragment(part, kind), False
        if not payload:
            return out


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def sized(data):
    return varint(len(data)) + data


def operation(family, key, value):
    """A put, or with `None` as the value a removal."""
    number = FAMILIES.index(family)
    kinds = DELETION if value is None else VALUE
    head = bytes([kinds[0]]) if number == 0 else bytes([kinds["cf"]]) + varint(number)
    return head + sized(key) + (b"" if value is None else sized(value))


def logs(store):
    found = [path for path in pathlib.Path(store).glob("*.log") if path.stem.isdigit()]
    return sorted(found, key=lambda path: int(path.stem))


def end_of(log):
    """Where a log's last record ends, and the sequence number that follows its batches."""
    at, following, begun = 0, 0, b""
    while at + HEADER <= len(log):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", log, at)
        if kind == 0 and length == 0:
            break
        payload = log[at + HEADER : at + HEADER + length]
        if kind in (1, 2):
            begun = payload[:12]
        if kind in (1, 2) and len(begun) == 12:
            sequence, count = struct.unpack("<QI", begun)
            following = max(following, sequence + count)
        at += HEADER + length
    return at, following


def plant(store, *operations):
    """Adds a batch of (family, key, value or None) to the store's newest log."""
    log_path = logs(store)[-1]
    log = log_path.read_bytes()
    at, following = end_of(log)
    if following == 0:
        # The log is empty: far above what was written before.
        following = 1 << 40
    payload = struct.pack("<QI", following, len(operations)) + b"".join(operation(*one) for one in operations)
    log_path.write_bytes(log[:at] + record(payload, at))


def seq_key(shard, seq):
    return struct.pack(">IQ", shard, seq)


def id_key(shard, doc_id):
    return struct.pack(">I", shard) + doc_id.encode()
