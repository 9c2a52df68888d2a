#!/usr/bin/env bash
# curl: the API by hand, and what only curl shows (HTTP/2, gzip, feeds, headers).
set -uo pipefail

base=${SETTEE_URL:?}
admin=${SETTEE_ADMIN:?}
db=$base/client-curl

c() { curl --silent --show-error --max-time 20 --user "$admin" "$@"; }
json() { c -H 'Content-Type: application/json' "$@"; }
status() { c --output /dev/null --write-out '%{http_code}' "$@"; }

# check NAME PATTERN TEXT: TEXT must match the extended regular expression
check() {
  local line=${3//$'\r'/}
  if grep -Eq -- "$2" <<<"$line"; then echo "ok $1"; else echo "not ok $1: expected $2, got ${line//$'\n'/ }"; fi
}

check 'welcome' '"couchdb":"Welcome"' "$(curl --silent "$base/")"
check 'up' '"status":"ok"' "$(curl --silent "$base/_up")"
check 'without a password' '"error":"unauthorized"' "$(curl --silent "$base/_all_dbs")"
check 'create a database' '"ok":true' "$(c -X PUT "$db")"
check 'create it again' '"error":"file_exists"' "$(c -X PUT "$db")"
check 'put' '"rev":"1-4c6114c65e295552ab1019e2b046b10e"' "$(c -X PUT "$db/doc" -d '{"foo":"bar"}')"
check 'get' '^\{"_id":"doc","_rev":"1-4c6114c65e295552ab1019e2b046b10e","foo":"bar"\}$' "$(c "$db/doc")"
check 'conflict' '"error":"conflict"' "$(c -X PUT "$db/doc" -d '{"foo":"baz"}')"
check 'update' '"rev":"2-' "$(c -X PUT "$db/doc?rev=1-4c6114c65e295552ab1019e2b046b10e" -d '{"foo":"baz"}')"
check 'post' '"ok":true' "$(json -X POST "$db" -d '{"_id":"posted"}')"
check 'bulk' '"id":"b3"' "$(json -X POST "$db/_bulk_docs" -d '{"docs":[{"_id":"b1"},{"_id":"b2"},{"_id":"b3"}]}')"
check 'bulk_get' '"results":\[' "$(json -X POST "$db/_bulk_get" -d '{"docs":[{"id":"b1"}]}')"
check 'all_docs' '"total_rows":5' "$(c "$db/_all_docs")"
check 'all_docs by keys' '"error":"not_found"' "$(json -X POST "$db/_all_docs" -d '{"keys":["b1","none"]}')"
check 'changes' '"last_seq":' "$(c "$db/_changes?since=0&limit=2")"
check 'changes, continuous' '"id":"b3"' "$(c "$db/_changes?feed=continuous&timeout=200")"
check 'changes, eventsource' '^data: ' "$(curl --silent --max-time 2 --user "$admin" "$db/_changes?feed=eventsource&heartbeat=200" || true)"
check 'longpoll returns at once when there is something' '"id":"posted"' "$(c "$db/_changes?feed=longpoll&since=0")"
check 'copy' '"id":"copied"' "$(c -X COPY -H 'Destination: copied' "$db/doc")"
check 'head has an ETag' '[Ee][Tt]ag: "1-' "$(c --head "$db/b1")"
check 'If-None-Match' '^304$' "$(status -H "If-None-Match: $(c --head "$db/b1" | tr -d '\r' | sed -n 's/^[Ee][Tt]ag: //p')" "$db/b1")"
check 'a request id' '[Xx]-[Cc]ouch-[Rr]equest-[Ii][Dd]: ' "$(c --head "$db")"
check 'gzipped body' '"ok":true' "$(printf '{"packed":true}' | gzip | c -X PUT -H 'Content-Encoding: gzip' --data-binary @- "$db/packed")"
check 'and unpacked' '"packed":true' "$(c "$db/packed")"
check 'chunked body' '"ok":true' "$(printf '{"chunked":true}' | c -X PUT -H 'Transfer-Encoding: chunked' --data-binary @- "$db/chunked")"
check 'HTTP/2' '^2$' "$(c --http2-prior-knowledge --output /dev/null --write-out '%{http_version}' "$db/doc")"
check 'security' '"ok":true' "$(c -X PUT "$db/_security" -d '{"admins":{"names":[],"roles":["_admin"]},"members":{"names":[],"roles":["_admin"]}}')"
check 'revs_limit' '"ok":true' "$(c -X PUT "$db/_revs_limit" -d '500')"
check 'local document' '"id":"_local/l"' "$(c -X PUT "$db/_local/l" -d '{"n":1}')"
check 'revs_diff' '"missing":\["3-x"\]' "$(json -X POST "$db/_revs_diff" -d '{"doc":["3-x"]}')"
check 'purge' '"purged"' "$(json -X POST "$db/_purge" -d '{"b1":["1-967a00dff5e02add41819138abb3284d"]}')"
check 'bad JSON' '"error":"bad_request"' "$(c -X PUT "$db/bad" -d '{')"
check 'uuids' '"uuids":\["[0-9a-f]{32}","[0-9a-f]{32}"\]' "$(c "$base/_uuids?count=2")"
cookie=$(mktemp)
check 'log in' '"ok":true' "$(curl --silent --cookie-jar "$cookie" -d "name=${admin%%:*}&password=${admin#*:}" "$base/_session")"
check 'use the session' '"_admin"' "$(curl --silent --cookie "$cookie" "$base/_session")"
check 'log out' '"ok":true' "$(curl --silent --cookie "$cookie" -X DELETE "$base/_session")"
rm -f "$cookie"
check 'delete a document' '"ok":true' "$(c -X DELETE "$db/b2?rev=1-967a00dff5e02add41819138abb3284d")"
check 'delete the database' '"ok":true' "$(c -X DELETE "$db")"
echo done
