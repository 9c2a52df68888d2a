def fun(doc):
    # build ROUND
    if doc.get("type") != "declaration":
        return
    code = doc["declarant"]["code"]
    income = sum(item["amount"] for item in doc["income"] if item["year"] == doc["year"] and item["taxed"])
    assets = sum(asset["amount"] * owner["share"]
                 for asset in doc["assets"] for owner in asset["owners"] if owner["code"] == code)
    debts = sum(item["amount"] for item in doc["liabilities"] if not item["settled"])
    moved = sum(item["amount"] if item["direction"] == "in" else -item["amount"] for item in doc["transfers"])
    yield [doc["year"], doc["declarant"]["region"], code], [income, assets, debts, moved]
