// An origin of Node's http module: `node site.mjs FOLDER`. Prints the port that it listens on.
//
// It serves the files of the folder, and the resources that proxy/origins.rs lists.

import { createReadStream, statSync } from "node:fs";
import { createServer } from "node:http";

const folder = process.argv[2];

function file(response, name, head) {
  const path = `${folder}/${name}`;
  const size = statSync(path, { throwIfNoEntry: false })?.size;
  if (size === undefined) {
    response.writeHead(404).end("not found\n");
    return;
  }
  response.writeHead(200, head ?? { "content-length": size });
  createReadStream(path).pipe(response);
}

const server = createServer((request, response) => {
  switch (request.url) {
    case "/stream":
      return file(response, "large.bin", {});
    case "/echo":
      // Sends the body back while it arrives.
      response.writeHead(200);
      return request.pipe(response);
    case "/request": {
      const lines = [`${request.method} ${request.url} HTTP/${request.httpVersion}`];
      for (let i = 0; i < request.rawHeaders.length; i += 2) {
        lines.push(`${request.rawHeaders[i]}: ${request.rawHeaders[i + 1]}`);
      }
      return response.end(lines.join("\n") + "\n");
    }
    case "/trailers":
      response.writeHead(200, { trailer: "x-sum" });
      response.write("content");
      response.addTrailers({ "x-sum": "7" });
      return response.end();
    case "/early":
      response.writeEarlyHints({ link: "</style.css>; rel=preload" });
      return response.end("late\n");
    default:
      return file(response, request.url.slice(1));
  }
});

server.listen(0, "127.0.0.1", 1024, () => console.log(server.address().port));
