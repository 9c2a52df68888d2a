"""Topics with any settings, and records of any bytes, as from some other program. Kafka's protocol, and no more of it than that."""

import itertools
import socket
import struct
import time

PRODUCE, PRODUCE_VERSION = 0, 3
CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 2
DELETE_TOPICS, DELETE_TOPICS_VERSION = 20, 1
ALL_IN_SYNC = -1
TIMEOUT_S = 10
CASTAGNOLI = 0x82F63B78


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def _row(byte):
    for _ in range(8):
        byte = (byte >> 1) ^ (CASTAGNOLI if byte & 1 else 0)
    return byte


TABLE = [_row(byte) for byte in range(256)]
_correlations = itertools.count(1)


def append(address, topic, partition, value):
    """Appends a record; returns its offset. `address` is the HOST:PORT of the partition's leader."""
    body = struct.pack(">hhi", -1, ALL_IN_SYNC, TIMEOUT_S * 1000)
    batch = batch_of(value)
    body += struct.pack(">i", 1) + text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
    answer = ask(address, PRODUCE, PRODUCE_VERSION, body)
    # One topic with one partition: its number, an error, and the offset.
    at = 4 + 2 + len(topic.encode()) + 4 + 4
    error, offset = struct.unpack_from(">hq", answer, at)
    if error:
        raise RuntimeError(f"{topic}-{partition}: Kafka's error {error}")
    return offset


def ask(address, key, version, body):
    host, port = address.split(":")
    number = next(_correlations)
    request = struct.pack(">hhi", key, version, number) + text("tests") + body
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answers:
            (length,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(length)
    if struct.unpack_from(">i", answer)[0] != number:
        raise RuntimeError("an answer to another question")
    return answer[4:]


def batch_of(value):
    """A batch with one record, without a key."""
    record = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    record = varint(len(record)) + record
    now = int(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + record
    rest = struct.pack(">ibI", -1, 2, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(rest)) + rest


def varint(number):
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def text(value):
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def create_topic(address, name, partitions, settings):
    """With these settings, each on one broker."""
    body = struct.pack(">i", 1) + text(name) + struct.pack(">ihi", partitions, 1, 0)
    body += struct.pack(">i", len(settings)) + b"".join(text(key) + text(value) for key, value in settings.items())
    answer = ask(address, CREATE_TOPICS, CREATE_TOPICS_VERSION, body + struct.pack(">i?", TIMEOUT_S * 1000, False))
    # A time, and one topic with its name.
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(name.encode()))
    if error:
        raise RuntimeError(f"{name}: Kafka's error {error}")


def delete_topic(address, name):
    answer = ask(address, DELETE_TOPICS, DELETE_TOPICS_VERSION, struct.pack(">i", 1) + text(name) + struct.pack(">i", TIMEOUT_S * 1000))
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(name.encode()))
    if error:
        raise RuntimeError(f"{name}: Kafka's error {error}")
