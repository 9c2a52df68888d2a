#!/bin/bash
# S=http://NAME:PASSWORD@127.0.0.1:5984 bash quickstart.sh
json='Content-Type: application/json'

# A database, and three documents.
curl -s -o /dev/null -w 'database: %{http_code}\n' -X PUT "$S/quickstart"
curl -s -o /dev/null -w 'documents: %{http_code}\n' "$S/quickstart/_bulk_docs" -H "$json" -d '{"docs":[
  {"_id":"tea","price":4.5},
  {"_id":"milk","price":1.25},
  {"_id":"pot","price":24.9}]}'

# An update names the revision that it replaces: the one that was read.
rev=$(curl -s "$S/quickstart/tea" | sed 's/.*"_rev":"\([^"]*\)".*/\1/')
curl -s -o /dev/null -w 'update: %{http_code}\n' -X PUT "$S/quickstart/tea" -d "{\"_rev\":\"$rev\",\"price\":5}"

# That revision is no longer the latest: somebody else was faster.
curl -s -o /dev/null -w 'conflict: %{http_code}\n' -X PUT "$S/quickstart/tea" -d "{\"_rev\":\"$rev\",\"price\":6}"

# A query.
found=$(curl -s "$S/quickstart/_find" -H "$json" -d '{"selector":{"price":{"$lt":10}},"fields":["_id"]}')
echo "found: $(grep -o '"_id":"[a-z]*"' <<<"$found" | cut -d '"' -f 4 | paste -sd ' ')"

curl -s -o /dev/null -X DELETE "$S/quickstart"
