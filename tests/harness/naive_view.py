"""A view in memory: rows in a sorted list, every query a walk over it. What a server's answers are compared with.

Strings are ordered by code points, which is ICU's order only for texts of lower-case ASCII letters and digits: keys
whose order matters hold no others.
"""

import json
import zlib


class Refused(Exception):
    """The query is answered with this status and CouchDB's `error`."""

    def __init__(self, status, error):
        super().__init__(f"{status} {error}")
        self.status, self.error = status, error


def collation(value):
    """A key to sort by: null, false, true, numbers, strings, arrays, objects."""
    if value is None:
        return (0,)
    if isinstance(value, bool):
        return (2,) if value else (1,)
    if isinstance(value, (int, float)):
        return (3, value)
    if isinstance(value, str):
        return (4, value)
    if isinstance(value, list):
        return (5, [collation(item) for item in value])
    return (6, [((4, name), collation(member)) for name, member in value.items()])


def erlang_order(value):
    """A value to sort by: numbers, then false, null and true (atoms by name), objects, arrays, strings."""
    if value is None or isinstance(value, bool):
        return (1, {False: 0, None: 1, True: 2}[value])
    if isinstance(value, (int, float)):
        return (0, value)
    if isinstance(value, dict):
        return (2, [(name.encode(), erlang_order(member)) for name, member in value.items()])
    if isinstance(value, list):
        return (3, [erlang_order(item) for item in value])
    return (4, value.encode())


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def shard_of(doc_id, shards, partitioned=False):
    """The number of the shard that CouchDB puts a document into."""
    hashed = doc_id.partition(":")[0] if partitioned else doc_id
    return min(zlib.crc32(hashed.encode()) // (2**32 // shards), shards - 1)


class Row:
    def __init__(self, doc_id, key, value, doc):
        self.id, self.key, self.value, self.doc = doc_id, key, value, doc
        self.place = (collation(key), doc_id)

    def json(self):
        return {"id": self.id, "key": self.key, "value": self.value}


class NaiveView:
    """`docs` are whole documents with `_id`; `map_function(doc)` returns (key, value) pairs or raises; `reduce` is a
    function of a list of rows, or None."""

    def __init__(self, docs, map_function, reduce=None):
        self.shard_of = lambda doc_id: 0
        self.docs = {doc["_id"]: doc for doc in docs}
        self.reduce = reduce
        self.rows = []
        for doc in docs:
            try:
                emitted = list(map_function(doc))
            except Exception:  # a function that throws emits nothing for the document
                continue
            self.rows += [Row(doc["_id"], key, value, doc) for key, value in emitted]
        # Rows of one document with equal keys are in the order that Erlang has for their values.
        self.rows.sort(key=lambda row: (row.place, erlang_order(row.value)))

    def query(self, options):
        """The answer's body without what depends on sequences. Raises Refused."""
        options = dict(options)
        reducing = self.reduce is not None and options.get("reduce", True)
        self._check(options, reducing)
        rows = self.rows[::-1] if options.get("descending") else self.rows
        if "keys" in options:
            # `descending` turns the order of the keys too, but not that of their groups.
            keys = options["keys"][::-1] if options.get("descending") and not reducing else options["keys"]
            chosen = [[row for row in rows if row.place[0] == collation(key)] for key in keys]
            before = self._before_keys(rows, keys, options)
        else:
            before, inside = self._range(rows, options)
            chosen = [inside]
        if reducing:
            return {"rows": self._cut(self._reduced(chosen, options), options)}
        shown = self._cut([row for part in chosen for row in part], options)
        offset = min(len(self.rows), before + options.get("skip", 0))
        return {"total_rows": len(self.rows), "offset": offset, "rows": [self._shown(row, options) for row in shown]}

    def _before_keys(self, rows, keys, options):
        """The sum over the shards of how many of a shard's rows lie before the first that it answers, or before the last key."""
        backwards, sought, before = bool(options.get("descending")), [collation(key) for key in keys], 0
        for shard in {self.shard_of(row.id) for row in rows} if keys else ():
            places = [row.place[0] for row in rows if self.shard_of(row.id) == shard]
            first = next((key for key in sought if key in places), sought[-1])
            before += sum(place > first if backwards else place < first for place in places)
        return before

    def _check(self, options, reducing):
        def refuse_if(condition):
            if condition:
                raise Refused(400, "query_parse_error")

        grouping = bool(options.get("group")) or options.get("group_level", 0) > 0
        refuse_if(options.get("reduce") and self.reduce is None)
        refuse_if(grouping and not reducing)
        refuse_if(reducing and options.get("include_docs"))
        refuse_if(reducing and not grouping and len(options.get("keys", [])) > 1)
        if "startkey" in options and "endkey" in options:
            start, end = collation(options["startkey"]), collation(options["endkey"])
            refuse_if(start < end if options.get("descending") else start > end)

    def _range(self, rows, options):
        """How many rows lie before the range in the order of the walk, and the rows inside."""
        backwards = bool(options.get("descending"))
        if "key" in options:
            options = {**options, "startkey": options["key"], "endkey": options["key"], "inclusive_end": True}

        def is_before_start(row):
            if "startkey" not in options:
                return False
            start, key = collation(options["startkey"]), row.place[0]
            if key != start:
                return key > start if backwards else key < start
            if "startkey_docid" not in options:
                return False
            return row.id > options["startkey_docid"] if backwards else row.id < options["startkey_docid"]

        def is_behind_end(row):
            if "endkey" not in options:
                return False
            end, key = collation(options["endkey"]), row.place[0]
            if key != end:
                return key < end if backwards else key > end
            if options.get("inclusive_end") is False:
                # Without the end, its document id is the first that is left out.
                if "endkey_docid" not in options:
                    return True
                return row.id <= options["endkey_docid"] if backwards else row.id >= options["endkey_docid"]
            if "endkey_docid" not in options:
                return False
            return row.id < options["endkey_docid"] if backwards else row.id > options["endkey_docid"]

        before = sum(is_before_start(row) for row in rows)
        return before, [row for row in rows if not is_before_start(row) and not is_behind_end(row)]

    def _reduced(self, chosen, options):
        level = options.get("group_level")
        if level is None:
            level = -1 if options.get("group") else 0
        groups = []
        for rows in chosen:
            last = None
            for row in rows:
                key = group_key(row.key, level)
                if last is None or collation(last[0]) != collation(key):
                    last = (key, [])
                    groups.append(last)
                last[1].append(row)
        # A reduce sees rows in key order, whatever the direction of the walk.
        return [{"key": key, "value": self.reduce(sorted(rows, key=lambda row: row.place))} for key, rows in groups]

    def _shown(self, row, options):
        shown = row.json()
        if options.get("include_docs"):
            linked = row.value.get("_id") if isinstance(row.value, dict) else None
            # As in CouchDB, `conflicts` is about a row's own document.
            shown["doc"] = without_conflicts(self.docs.get(linked), {}) if isinstance(linked, str) else without_conflicts(row.doc, options)
        return shown

    @staticmethod
    def _cut(rows, options):
        skip = options.get("skip", 0)
        return rows[skip:] if options.get("limit") is None else rows[skip : skip + options["limit"]]


def group_key(key, level):
    """Level -1 is the whole key, 0 everything in one group."""
    if level == 0:
        return None
    return key[:level] if level > 0 and isinstance(key, list) else key


def without_conflicts(doc, options):
    """Maps see conflicts; answers show them when asked to."""
    if doc is None:
        return None
    hidden = {"_deleted_conflicts"} | (set() if options.get("conflicts") else {"_conflicts"})
    return {name: value for name, value in doc.items() if name not in hidden}


# Built-in reduces, and custom ones as the test's JavaScript functions have them: each of a list of rows.


def count(rows):
    return len(rows)


def total(rows):
    return _total([row.value for row in rows])


def _total(values):
    if isinstance(values[0], list):
        width = max(len(value) for value in values)
        return [sum(value[at] for value in values if at < len(value)) for at in range(width)]
    if isinstance(values[0], dict):
        names = dict.fromkeys(name for value in values for name in value)
        return {name: _total([value[name] for value in values if name in value]) for name in names}
    return sum(values)


def stats(rows):
    values = [row.value for row in rows]
    return {"sum": sum(values), "count": len(values), "min": min(values), "max": max(values), "sumsqr": sum(value * value for value in values)}


def first(rows):
    return rows[0].value


def last(rows):
    return rows[-1].value


def top(number):
    return lambda rows: ranked(rows)[::-1][:number]


def bottom(number):
    return lambda rows: ranked(rows)[:number]


def ranked(rows):
    """The values in their order, each once."""
    values = []
    for value in sorted((row.value for row in rows), key=collation):
        if not values or collation(values[-1]) != collation(value):
            values.append(value)
    return values


def distinct(rows):
    return len({json.dumps(row.key) for row in rows})


def canonical(value):
    """Text by which JSON values are equal: 1 and 1.0 are, 1 and true are not, the order of members does not count."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)


def _plain(value):
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    return value
