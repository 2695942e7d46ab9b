"""An origin of Python's http.server: `site.py FOLDER`. Prints the port that it listens on.

It serves the files of the folder, and the resources that proxy/origins.rs lists.
"""

import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

PIECE = 65536


class Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments):
        super().__init__(*arguments, directory=sys.argv[1])

    def do_GET(self):
        match self.path:
            case "/stream":
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                with open(f"{sys.argv[1]}/large.bin", "rb") as file:
                    self.send_chunks(iter(lambda: file.read(PIECE), b""))
            case "/request":
                self.send_whole(f"{self.requestline}\n{self.headers}".encode())
            case _:
                super().do_GET()

    def do_POST(self):
        """Sends the body back while it arrives, with the framing of the request."""
        self.send_response(200)
        if self.headers.get("Transfer-Encoding") == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.send_chunks(self.chunks())
            return
        remaining = int(self.headers.get("Content-Length", 0))
        self.send_header("Content-Length", str(remaining))
        self.end_headers()
        while remaining:
            piece = self.rfile.read1(min(remaining, PIECE))
            if not piece:
                sys.exit("the request is cut")
            self.wfile.write(piece)
            remaining -= len(piece)

    do_PUT = do_POST

    def chunks(self):
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass

    def send_chunks(self, pieces):
        for piece in pieces:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def send_whole(self, content):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024


server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
