// The application with Node's own http: node server.js PORT.

'use strict';

const http = require('node:http');

// What the client reads is kept on the request.
function language(request, response, next) {
  request.language = (request.headers['accept-language'] ?? '').startsWith('zh') ? 'zh' : 'en';
  next();
}

function servedBy(request, response, next) {
  response.setHeader('X-Served-By', 'bench');
  next();
}

function hello(request, response, name) {
  send(response, 200, 'text/plain; charset=utf-8', request.language === 'zh' ? `你好，${name}！` : `Hello, ${name}!`);
}

function json(request, response, parameter) {
  const id = Number.parseInt(parameter, 10);
  if (Number.isNaN(id)) {
    return send(response, 400, 'text/plain; charset=utf-8', 'no number');
  }
  send(response, 200, 'application/json', JSON.stringify({ id, name: 'Apus apus', language: request.language }));
}

function send(response, status, type, content) {
  response.writeHead(status, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(content) });
  response.end(content);
}

const routes = new Map([['hello', hello], ['json', json]]);

function route(request, response) {
  const [, name, parameter] = request.url.split('/', 3);
  const handler = request.method === 'GET' && parameter ? routes.get(name) : undefined;
  if (!handler) {
    return send(response, 404, 'text/plain; charset=utf-8', 'there is no such page');
  }
  handler(request, response, decodeURIComponent(parameter));
}

http
  .createServer((request, response) => {
    language(request, response, () => servedBy(request, response, () => route(request, response)));
  })
  .listen({ port: Number(process.argv[2]), host: '127.0.0.1', backlog: 4096 });
