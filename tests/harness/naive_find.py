"""What a selector means, one document at a time: normalised as CouchDB normalises it, then judged."""

import functools
import re

MISSING, NO_WAY = object(), object()


def get(doc, path):
    value = doc
    for part in path.split("."):
        if isinstance(value, dict):
            if part not in value:
                return MISSING
            value = value[part]
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return NO_WAY
    return value


def finds(selector, doc):
    """What `_find` does: a selector that is an empty combination alone finds nothing."""
    return not is_empty(selector) and matches(selector, doc)


def is_empty(selector):
    """Whether the normal form of the whole selector is `{"$and": []}` or `{"$or": []}`."""
    if len(selector) != 1:
        return False
    name, value = next(iter(selector.items()))
    return value == [] if name in ("$and", "$or", "$nor") else name == "$not" and is_empty(value)


def matches(selector, doc):
    return all(_member(name, value, doc, False) for name, value in selector.items()) if selector else True


def _any(parts):
    """An empty `$or` restricts nothing, like an empty `$and`."""
    parts = list(parts)
    return not parts or any(parts)


def _judge(selector, doc, negated):
    if not selector:
        return _field(doc, "$eq", {}, negated)
    parts = [_member(name, value, doc, negated) for name, value in selector.items()]
    return any(parts) if negated else all(parts)


def _member(name, value, doc, negated):
    if name == "$and":
        return (_any if negated else all)(_judge(s, doc, negated) for s in value)
    if name == "$or":
        return (all if negated else _any)(_judge(s, doc, negated) for s in value)
    if name == "$nor":
        return (_any if negated else all)(_judge(s, doc, not negated) for s in value)
    if name == "$not":
        return _judge(value, doc, not negated)
    if name.startswith("$"):
        # Without a field it is about the document.
        return _field(doc, name, value, negated)
    conditions = value if isinstance(value, dict) and value and all(k.startswith("$") for k in value) else {"$eq": value}
    parts = [_field(get(doc, name), op, operand, negated) for op, operand in conditions.items()]
    return any(parts) if negated else all(parts)


def _field(found, op, operand, negated):
    if op == "$not":
        parts = [_field(found, inner, value, not negated) for inner, value in operand.items()]
        return all(parts) if negated else any(parts) if len(parts) > 1 else parts[0]
    if op == "$exists":
        operand, negated = operand != negated, False
        return (found not in (MISSING, NO_WAY)) if operand else found is MISSING
    if found is MISSING or found is NO_WAY:
        return False
    return _holds(found, op, operand) != negated


def _holds(value, op, operand):
    if op in ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte"):
        order = compare(value, operand)
        return {"$eq": order == 0, "$ne": order != 0, "$gt": order > 0, "$gte": order >= 0, "$lt": order < 0, "$lte": order <= 0}[op]
    if op in ("$in", "$nin"):
        values = value if isinstance(value, list) else [value]
        return any(compare(v, o) == 0 for v in values for o in operand) == (op == "$in")
    if op == "$type":
        return kind(value) == operand
    if op == "$regex":
        return isinstance(value, str) and re.search(operand, value) is not None
    if op == "$beginsWith":
        return isinstance(value, str) and value.startswith(operand)
    if op == "$size":
        return isinstance(value, list) and len(value) == operand
    if op == "$mod":
        return isinstance(value, int) and not isinstance(value, bool) and value % operand[0] == operand[1]
    if op == "$all":
        return isinstance(value, list) and all(any(_same(v, o) for v in value) for o in operand)
    if op in ("$elemMatch", "$allMatch"):
        each = any if op == "$elemMatch" else all
        return isinstance(value, list) and value != [] and each(_element(v, operand) for v in value)
    raise ValueError(op)


def _element(value, operand):
    return operand == {"$or": []} or compare(value, operand["$eq"]) == 0


def _same(a, b):
    return type(a) is type(b) and a == b


def kind(value):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return {str: "string", list: "array", dict: "object"}[type(value)]


def _rank(value):
    if isinstance(value, bool):
        return 2 if value else 1
    return {"null": 0, "number": 3, "string": 4, "array": 5, "object": 6}[kind(value)]


# The strings that the tests use, in the order of the collation.
STRINGS = {text: n for n, text in enumerate(["", "a", "A", "ab", "b", "é", "k", "x", "y", "z", "zz"])}


def compare(a, b):
    """-1, 0 or 1, in the order of views."""
    ranks = _rank(a), _rank(b)
    if ranks[0] != ranks[1]:
        return -1 if ranks[0] < ranks[1] else 1
    if ranks[0] < 3:
        return 0
    if isinstance(a, list):
        return _first([compare(x, y) for x, y in zip(a, b)] + [_sign(len(a), len(b))])
    if isinstance(a, dict):
        members = [(compare(x[0], y[0]), compare(x[1], y[1])) for x, y in zip(a.items(), b.items())]
        return _first([order for pair in members for order in pair] + [_sign(len(a), len(b))])
    if isinstance(a, str):
        return _sign(STRINGS[a], STRINGS[b])
    return _sign(a, b)


def _first(orders):
    return functools.reduce(lambda held, order: held or order, orders, 0)


def _sign(a, b):
    return (a > b) - (a < b)
