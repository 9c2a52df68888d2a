def fun(doc):
    # build ROUND
    if doc.get("type") == "order":
        yield doc["customer"], doc["amount"]
