"""A collector of traces: takes OTLP over HTTP, decodes it by the published protocol, and prints each span as a line of JSON.

The first line says at which URL it listens. `--refuse N` has it answer the first N requests with 503.
"""

import http.server
import json
import sys

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

KINDS = {1: "internal", 2: "server", 3: "client"}


def value(of):
    return getattr(of, of.WhichOneof("value"))


def attributes(of):
    return {pair.key: value(pair.value) for pair in of}


def spans(request):
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield {
                    "service": attributes(resource.resource.attributes),
                    "scope": [scope.scope.name, scope.scope.version],
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "name": span.name,
                    "kind": KINDS.get(span.kind, span.kind),
                    "began_ns": span.start_time_unix_nano,
                    "ended_ns": span.end_time_unix_nano,
                    "attributes": attributes(span.attributes),
                    "error": span.status.message if span.status.code == 2 else None,
                }


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    refuse = 0

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if Handler.refuse > 0:
            Handler.refuse -= 1
            return self.answer(503, b"")
        if self.path != "/v1/traces" or self.headers["content-type"] != "application/x-protobuf":
            print(json.dumps({"wrong": [self.path, self.headers["content-type"]]}), flush=True)
            return self.answer(404, b"")
        for span in spans(ExportTraceServiceRequest.FromString(body)):
            print(json.dumps(span), flush=True)
        return self.answer(200, ExportTraceServiceResponse().SerializeToString())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if "--refuse" in sys.argv:
    Handler.refuse = int(sys.argv[sys.argv.index("--refuse") + 1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
