#!/usr/bin/env python3
"""Writes the sample shop, web/public/shop.json, which the web interface and `settee load sample:shop` load.

usage: sample_shop.py [--check]

It is the body of a `_bulk_docs` with revisions: products, customers and orders; views, a Mango index and a text index; three documents with
conflicts. The same program gives the same bytes. `--check` writes nothing, and fails if the file differs.
"""

import datetime
import hashlib
import json
import pathlib
import random
import sys

FILE = pathlib.Path(__file__).resolve().parent.parent / "web" / "public" / "shop.json"

PRODUCTS = """
tea|Assam tea|4.5|Black tea from Assam in India: strong, malty and good with milk.
tea|Darjeeling tea|7.2|Light black tea of the first harvest, with the scent of flowers and grapes.
tea|Earl Grey|5.1|Black tea with the oil of bergamot oranges.
tea|Sencha|6.4|Green tea from Japan: fresh, grassy and slightly sweet.
tea|Jasmine tea|5.8|Green tea that was dried between jasmine flowers.
tea|Rooibos|3.9|Red bush tea from South Africa, without caffeine.
tea|Peppermint tea|2.9|Dried peppermint leaves, good for a cold evening.
tea|Chai|4.2|Black tea with cinnamon, cardamom, ginger and cloves.
coffee|Espresso beans|9.5|Dark roasted coffee beans with a taste of chocolate and nuts.
coffee|Filter coffee|8.2|Ground coffee, medium roasted, for filters and presses.
coffee|Decaf|8.9|Coffee beans without caffeine, washed with water only.
coffee|Cold brew|3.5|Bottled coffee that was brewed cold for twelve hours.
kitchen|Tea pot|24.9|A pot of white porcelain for one litre of tea, with a sieve.
kitchen|Kettle|39.0|An electric kettle that stops at 70, 80 or 100 degrees.
kitchen|Moka pot|29.5|Brews strong coffee on the stove, for three cups.
kitchen|Coffee mill|49.0|A hand mill with a steel grinder, from fine to coarse.
kitchen|Mug|8.5|A mug of stoneware for tea or coffee, 0.3 litres.
kitchen|Tea strainer|4.9|A strainer of stainless steel for cups and mugs.
kitchen|Paper filters|2.2|One hundred unbleached filters for drip coffee.
sweets|Shortbread|3.2|Scottish biscuits with much butter.
sweets|Dark chocolate|2.8|A bar of chocolate with 70 percent cocoa.
sweets|Ginger biscuits|3.4|Thin biscuits with ginger and cinnamon, good with chai.
sweets|Honey|6.9|Honey from lime trees, from a beekeeper in the next village.
sweets|Marzipan|4.1|Almond paste with rose water, covered with dark chocolate.
"""
CUSTOMERS = """
Anna Berg|Berlin|DE|52.52|13.405
Ben Moreau|Lyon|FR|45.764|4.8357
Chiara Conti|Milan|IT|45.4642|9.19
Diego Ruiz|Madrid|ES|40.4168|-3.7038
Eva Novak|Prague|CZ|50.0755|14.4378
Finn Larsen|Copenhagen|DK|55.6761|12.5683
Greta Huber|Graz|AT|47.0707|15.4395
Hugo Silva|Lisbon|PT|38.7223|-9.1393
Ida Virtanen|Helsinki|FI|60.1699|24.9384
Jan de Vries|Utrecht|NL|52.0907|5.1214
"""
ORDERS = 60
STATES = ["paid", "sent", "sent", "sent", "returned"]

DESIGN = {
    "_id": "_design/shop",
    "views": {
        "products_by_category": {
            "map": "function (doc) {\n  if (doc.type === 'product') emit([doc.category, doc.name], doc.price);\n}",
            "reduce": "_stats",
        },
        "sales_by_month": {
            "map": "function (doc) {\n  if (doc.type !== 'order') return;\n  const [year, month] = doc.date.split('-').map(Number);\n  emit([year, month], doc.total);\n}",
            "reduce": "_sum",
        },
        "orders_by_customer": {"map": "function (doc) {\n  if (doc.type === 'order') emit(doc.customer, doc.total);\n}", "reduce": "_sum"},
    },
    "nouveau": {
        "products": {
            "default_analyzer": "english",
            "field_analyzers": {"category": "keyword"},
            "index": "function (doc) {\n  if (doc.type !== 'product') return;\n  index('text', 'default', doc.name + ' ' + doc.description);\n  index('string', 'category', doc.category, {store: true});\n  index('double', 'price', doc.price, {store: true});\n}",
        }
    },
}
INDEX = {
    "_id": "_design/by-price",
    "language": "query",
    "views": {
        "by-price": {
            "map": {"fields": {"type": "asc", "price": "asc"}, "partial_filter_selector": {}},
            "reduce": "_count",
            "options": {"def": {"fields": ["type", "price"]}},
        }
    },
}
# Each has a first revision, and two others that were written at two places at the same time.
CONFLICTS = {
    "product:kettle": ({"price": 35.0}, {"stock": 3, "description": "An electric kettle with a thermometer."}),
    "customer:anna-berg": ({"city": "Hamburg", "lat": 53.5511, "lon": 9.9937}, {"email": "anna.berg@mail.example"}),
    "order:0007": ({"status": "sent"}, {"status": "returned"}),
}


def slug(name):
    return name.lower().replace(" ", "-")


def rows(table):
    return [line.split("|") for line in table.strip().splitlines()]


def content():
    """All documents without revisions."""
    chance = random.Random(5984)
    products = [
        {
            "_id": f"product:{slug(name)}",
            "type": "product",
            "name": name,
            "category": category,
            "price": float(price),
            "stock": chance.randrange(0, 120),
            "description": text,
        }
        for category, name, price, text in rows(PRODUCTS)
    ]
    customers = [
        {
            "_id": f"customer:{slug(name)}",
            "type": "customer",
            "name": name,
            "email": f"{slug(name).replace('-', '.')}@example.org",
            "city": city,
            "country": country,
            "lat": float(lat),
            "lon": float(lon),
        }
        for name, city, country, lat, lon in rows(CUSTOMERS)
    ]
    orders = []
    for number in range(1, ORDERS + 1):
        bought = chance.sample(products, chance.randrange(1, 4))
        items = [{"product": product["_id"], "quantity": chance.randrange(1, 4), "price": product["price"]} for product in bought]
        day = datetime.date(2026, 1, 1) + datetime.timedelta(days=(number - 1) * 365 // ORDERS)
        orders.append(
            {
                "_id": f"order:{number:04}",
                "type": "order",
                "customer": chance.choice(customers)["_id"],
                "date": day.isoformat(),
                "items": items,
                "total": round(sum(item["quantity"] * item["price"] for item in items), 2),
                "status": chance.choice(STATES),
            }
        )
    return [*products, *customers, *orders, DESIGN, INDEX]


def revision(document):
    return hashlib.md5(json.dumps(document, sort_keys=True).encode(), usedforsecurity=False).hexdigest()


def with_revision(document, *older):
    """The document with a revision, after others of which the newest comes first."""
    ids = [revision(document), *older]
    first = {"_id": document["_id"], "_rev": f"{len(ids)}-{ids[0]}"}
    if older:
        first["_revisions"] = {"start": len(ids), "ids": ids}
    return {**first, **document}


def shop():
    documents = []
    for document in content():
        documents.append(with_revision(document))
        for change in CONFLICTS.get(document["_id"], ()):
            documents.append(with_revision({**document, **change}, revision(document)))
    # A line for each document.
    lines = ",\n".join(json.dumps(document, ensure_ascii=False, separators=(",", ":")) for document in documents)
    return f'{{"new_edits":false,"docs":[\n{lines}\n]}}\n'


def main():
    text = shop()
    if "--check" not in sys.argv[1:]:
        FILE.write_text(text, encoding="utf-8")
    elif FILE.read_text(encoding="utf-8") != text:
        sys.exit(f"{FILE} differs: run python3 scripts/sample_shop.py")


if __name__ == "__main__":
    main()
