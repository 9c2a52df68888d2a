# S=http://NAME:PASSWORD@127.0.0.1:5984 python3 quickstart.py
import base64
import json
import os
import urllib.error
import urllib.parse
import urllib.request

server = urllib.parse.urlsplit(os.environ["S"])
login = f"{urllib.parse.unquote(server.username)}:{urllib.parse.unquote(server.password)}"
headers = {
    "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
    "Content-Type": "application/json",
}


def request(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    url = f"{server.scheme}://{server.hostname}:{server.port}{path}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


# A database, and three documents.
print("database:", request("PUT", "/quickstart")[0])
docs = [
    {"_id": "tea", "price": 4.5},
    {"_id": "milk", "price": 1.25},
    {"_id": "pot", "price": 24.9},
]
print("documents:", request("POST", "/quickstart/_bulk_docs", {"docs": docs})[0])

# An update has the revision that it replaces: the one that was read.
_, tea = request("GET", "/quickstart/tea")
print("update:", request("PUT", "/quickstart/tea", {**tea, "price": 5})[0])

# That revision is no longer the latest: somebody else was faster.
print("conflict:", request("PUT", "/quickstart/tea", {**tea, "price": 6})[0])

# A query.
query = {"selector": {"price": {"$lt": 10}}, "fields": ["_id"]}
_, found = request("POST", "/quickstart/_find", query)
print("found:", " ".join(doc["_id"] for doc in found["docs"]))

request("DELETE", "/quickstart")
