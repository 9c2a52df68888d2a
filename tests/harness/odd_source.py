"""A source of replications that fails as it is told to: three documents, answered the way CouchDB answers."""

import http.server
import json
import threading
import urllib.parse


class OddSource:
    """`bulk`, `single`, `listed`: what befalls `d2` in `_bulk_get` ("ok", "error", "stub", whose attachment is long, or "leaves":
    there are two, each with an attachment, and the second fails when attachments are asked for), when it is read by itself ("ok", "missing", "gone", "broken", or "endless": its attachment does not end), and whether `_changes` names it when it is asked for that one alone.
    `length`: the length of the endless attachment, as announced; None if it is not."""

    def __init__(self, bulk="error", single="ok", listed=True, length=None):
        self.bulk, self.single, self.listed, self.length = bulk, single, listed, length
        self.singles = 0
        self.endless_bytes = 0
        self.checkpoints = {}
        source = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer = source.reply(self.command, self.path, body)
                if answer is ENDLESS:
                    source.send_endless(self)
                    return
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_HEAD = answer
            log_message = lambda *_: None

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/src"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def reply(self, method, target, body):
        path, _, query = target.partition("?")
        path, query = path.removeprefix("/src"), urllib.parse.parse_qs(query)
        missing = 404, {"error": "not_found", "reason": "missing"}
        if path in ("", "/"):
            return 200, {"db_name": "src", "update_seq": "3-x", "instance_start_time": "0", "doc_count": 3, "doc_del_count": 0}
        if path.startswith("/_local/"):
            if method == "PUT":
                self.checkpoints[path] = json.loads(body)
                return 201, {"ok": True, "id": path[1:], "rev": "0-1"}
            return (200, {**self.checkpoints[path], "_rev": "0-1"}) if path in self.checkpoints else missing
        if path == "/_ensure_full_commit":
            return 201, {"ok": True, "instance_start_time": "0"}
        if path == "/_changes":
            return 200, self.changes(query, body)
        if path == "/_bulk_get":
            return 200, {"results": [self.got(asked, query) for asked in json.loads(body)["docs"]]}
        if path == "/d2":
            self.singles += 1
            if self.single == "broken":
                return 500, {"error": "internal_server_error", "reason": "odd"}
            if self.single == "gone":
                return missing
            if self.single == "endless" and "rev" in query:
                return 200, ENDLESS
            if self.bulk == "leaves":
                if "open_revs" in query:
                    return 200, [{"ok": attached(revision)} for revision in json.loads(query["open_revs"][0])]
                return 200, attached(query["rev"][0], with_bytes=True)
            if "open_revs" in query:
                return 200, [{"missing": rev(2)} if self.single == "missing" else {"ok": document(2)}]
            return (200, document(2)) if self.single == "ok" else missing
        return missing

    def send_endless(self, handler):
        """Sends the document with its attachment, until the client goes."""
        attachment = {"follows": True, "content_type": "image/png", "revpos": 1, "digest": "md5-xxx"}
        if self.length is not None:
            attachment["length"] = self.length
        head = json.dumps({**document(2), "_attachments": {"a": attachment}})
        handler.close_connection = True
        handler.send_response(200)
        handler.send_header("Content-Type", "multipart/related; boundary=b")
        handler.end_headers()
        try:
            handler.wfile.write(
                f'--b\r\nContent-Type: application/json\r\n\r\n{head}\r\n--b\r\nContent-Disposition: attachment; filename="a"\r\n\r\n'.encode()
            )
            while True:
                handler.wfile.write(b"x" * PIECE_BYTES)
                self.endless_bytes += PIECE_BYTES
        except OSError:
            pass

    def changes(self, query, body):
        rows = [{"seq": f"{n}-x", "id": f"d{n}", "changes": [{"rev": rev(n)}]} for n in (1, 2, 3)]
        if self.bulk == "leaves":
            rows[1]["changes"].append({"rev": SECOND})
        since = int(query.get("since", ["0"])[0].split("-")[0])
        rows = [row for row in rows if int(row["seq"].split("-")[0]) > since]
        if body:
            wanted = json.loads(body)["doc_ids"]
            rows = [row for row in rows if row["id"] in wanted and (self.listed or row["id"] != "d2")]
        if query.get("limit") == ["0"]:
            return {"results": [], "last_seq": f"{since}-x", "pending": len(rows)}
        return {"results": rows, "last_seq": "3-x", "pending": 0}

    def got(self, asked, query):
        id = asked["id"]
        if id == "d2" and self.bulk == "leaves":
            with_bytes = query.get("attachments") == ["true"]
            if with_bytes and asked["rev"] == SECOND:
                return {"id": id, "docs": [{"error": {"id": id, "rev": SECOND, "error": "timeout", "reason": "odd"}}]}
            return {"id": id, "docs": [{"ok": attached(asked["rev"], with_bytes)}]}
        if id == "d2" and self.bulk == "error":
            error = {"id": id, "rev": asked["rev"], "error": "timeout", "reason": "The request could not be processed in time."}
            return {"id": id, "docs": [{"error": error}]}
        doc = document(int(id[1:]))
        if id == "d2" and self.bulk == "stub":
            doc["_attachments"] = {"a": {"stub": True, "length": 1 << 20, "content_type": "x/y", "revpos": 1, "digest": "md5-xxx"}}
        return {"id": id, "docs": [{"ok": doc}]}


SECOND = "1-" + "b" * 31 + "2"
ENDLESS = object()
PIECE_BYTES = 1 << 20


def attached(revision, with_bytes=False):
    content = {"data": "YQ=="} if with_bytes else {"stub": True, "length": 1}
    attachment = {"content_type": "x/y", "revpos": 1, "digest": "md5-DMF1ucDxtqgxw5niaXcmYQ==", **content}
    return {"_id": "d2", "_rev": revision, "_attachments": {"a": attachment}}


def rev(n):
    return "1-" + "a" * 31 + str(n)


def document(n):
    return {"_id": f"d{n}", "_rev": rev(n), "v": n}
