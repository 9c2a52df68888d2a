def fun(doc):
    # build ROUND
    yield [doc["type"], doc["year"]], 1
