#!/usr/bin/env python3
"""Takes what an OpenTelemetry exporter sends, and writes a line for each request: its path and length.

    collector.py PORT FILE
"""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Collector(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with open(sys.argv[2], "a") as file:
            file.write(f"{self.path} {len(body)}\n")
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Collector)
open(sys.argv[2], "w").close()
server.serve_forever()
