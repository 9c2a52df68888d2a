"""Random damage to JSON, text and numbers, reproducible from one seed."""

import json

ODD_TOKENS = [
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e400",
    b"-0.0",
    b"1e-400",
    b"99999999999999999999999999",
    b'""',
    b"[]",
    b"{}",
    b"NaN",
    b"'x'",
    b"\\u0000",
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b"\x00",
    b"\xff\xfe",
    b"\xc3",
    b"\xef\xbb\xbf",
    b"/* */",
    b",,",
    b"::",
    b'"',
    b"[[[[",
    b"}",
    b"\\x",
    b"0x10",
    b"01",
    b"+1",
    b".5",
    b"1.",
    b"\xed\xa0\x80",
]
ODD_VALUES = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    2**63,
    -(2**70),
    "",
    "x",
    "_",
    "\u0000",
    "é",
    "1-",
    "1-x",
    "0-0",
    "_design/",
    "_local/",
    "x" * 5000,
    [],
    {},
    [None],
    [[]],
    {"": None},
    {"_id": 1},
    {"_rev": []},
    "9" * 400 + "-a",
    ["a", 1, {}],
    "null",
    "[]",
]
ODD_TEXTS = [
    "",
    " ",
    "_",
    "__",
    "_x",
    "_design",
    "_design/",
    "_design//",
    "_local",
    "_local/",
    "%",
    "%%",
    "%z",
    "%zz",
    "%0",
    "%00",
    "%ff",
    "%c3%28",
    "%ed%a0%80",
    "..",
    "../..",
    "..%2f..%2fetc",
    "a%2fb",
    "+",
    "a b",
    "a\tb",
    "é",
    "\u2028",
    "x" * 300,
    "x" * 9000,
    "?",
    "#",
    "&",
    "=",
    ";",
    "a=b",
    "[]",
    "{}",
    '"',
    '"a',
    "'",
    "\\",
    "null",
    "true",
    "0",
    "-1",
    "1-x",
    "%22%22",
    "*",
    "~",
    "a//b",
    "//",
    ".",
    "CON",
    "_all_docs/x",
    "_nope",
    "%5F",
    "%5Fall_docs",
    "%252e",
]


def mutate_json(rng, value):
    """Bytes: `value` as JSON, harmed in its structure or in its bytes; at times unharmed."""
    kind = rng.random()
    if kind < 0.45:
        return json.dumps(swap_node(rng, value)).encode("utf-8", "surrogatepass")
    text = json.dumps(value).encode()
    if kind < 0.55:
        return text[: rng.randrange(len(text))]
    if kind < 0.7:
        at = rng.randrange(len(text) + 1)
        return text[:at] + rng.choice(ODD_TOKENS) + text[at + rng.randrange(3) :]
    if kind < 0.8:
        flipped = bytearray(text)
        for _ in range(rng.randint(1, 4)):
            flipped[rng.randrange(len(flipped))] = rng.randrange(256)
        return bytes(flipped)
    if kind < 0.86:
        depth = rng.choice((50, 500, 5000, 50_000))
        opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
        return opened * depth + b"1" + closed * (depth if rng.random() < 0.5 else 0)
    if kind < 0.93:
        return rng.choice(ODD_TOKENS)
    if kind < 0.97:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(64)))
    return text


def swap_node(rng, value):
    """The same value with one random node replaced, added or removed."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        harmed = dict(value)
        name = rng.choice(list(harmed))
        kind = rng.random()
        if kind < 0.7:
            harmed[name] = swap_node(rng, harmed[name])
        elif kind < 0.85:
            harmed[rng.choice(ODD_TEXTS)] = harmed.pop(name)
        else:
            harmed["_" + name] = rng.choice(ODD_VALUES)
        return harmed
    if isinstance(value, list) and value and rng.random() < 0.8:
        harmed = list(value)
        at = rng.randrange(len(harmed))
        if rng.random() < 0.8:
            harmed[at] = swap_node(rng, harmed[at])
        else:
            harmed.insert(at, rng.choice(ODD_VALUES))
        return harmed
    return rng.choice(ODD_VALUES)


def odd_segment(rng):
    """A path segment that need not be a valid one; only bytes that HTTP forbids in a request line are left out half the time."""
    text = rng.choice(ODD_TEXTS) if rng.random() < 0.7 else "".join(chr(rng.randrange(33, 0x250)) for _ in range(rng.randrange(1, 30)))
    if rng.random() < 0.5:
        return "".join(char if char.isalnum() or char in "_%-/.+" else "".join(f"%{byte:02x}" for byte in char.encode()) for char in text)
    return text


def odd_value(rng):
    """A query value."""
    kind = rng.random()
    if kind < 0.5:
        return odd_segment(rng)
    if kind < 0.75:
        return str(rng.choice((-1, 0, 1, 2**31, 2**63, 2**64, -(2**63), 1.5, 1e300)))
    return json.dumps(rng.choice(ODD_VALUES)).replace(" ", "%20").replace("#", "%23")
