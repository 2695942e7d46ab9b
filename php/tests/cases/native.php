<?php

/** The native API. */

declare(strict_types=1);

namespace Apus\Tests;

define(__NAMESPACE__ . '\NATIVE', APP . '/native/index.php');

return [
    'routes, parameters and results of handlers' => static function (Server $server): void {
        $worker = $server->worker('native', NATIVE);
        foreach ([
            ['GET', '/', 200, '<p>home</p>'],
            ['GET', '/json', 200, '{"a":[1,2.0,"ü/"]}'],
            ['GET', '/nothing', 204, ''],
            ['GET', '/users/7', 200, '1 7 none GET'],
            ['HEAD', '/users/7', 200, '1 7 none HEAD'],
            ['GET', '/users/-7/m%20x', 200, '1 -7 m x GET'],
            ['GET', '/users/x', 404, null],
            ['GET', '/users/7/', 404, null],
            ['PUT', '/users/7', 200, 'put 7'],
            ['DELETE', '/users/7', 405, null],
            ['POST', '/users/7', 200, '["POST",7,null]'],
            ['GET', '/static', 200, 'static'],
            ['GET', '/float/1.50', 200, '1.5'],
            ['GET', '/slug/a-b_c', 200, 'slug a-b_c'],
            ['GET', '/slug/a.b', 404, null],
            ['GET', '/uuid/123e4567-e89b-12d3-a456-426614174000', 200, 'uuid 123e4567-e89b-12d3-a456-426614174000'],
            ['GET', '/files/a/b%2Fc.txt?x', 200, 'rest a/b/c.txt'],
            ['GET', "/users/7%0A", 404, null],
            ['POST', '/', 405, null],
            ['GET', '/none', 404, null],
        ] as [$method, $target, $status, $body]) {
            $response = $worker->request(parameters($target, ['REQUEST_METHOD' => $method]));
            check($response->status, $status, "$method $target");
            $body !== null && check($response->body, $body, "$method $target");
            check($response->field('x-always'), $status < 400 ? '1' : null, 'X-Always');
        }
        check($worker->request(parameters('/users/7', ['REQUEST_METHOD' => 'DELETE']))->field('allow'), 'GET, PUT, POST, PATCH, HEAD', 'Allow');
        $worker->stop();
    },
    'middlewares, outermost first' => static function (Server $server): void {
        $worker = $server->worker('native', NATIVE);
        check($worker->request(parameters('/admin/one'))->json(), ['a'], 'group');
        $response = $worker->request(parameters('/admin/deep/two'));
        check($response->json(), ['a', 'b', 'c'], 'nested group');
        check($response->fields['x-trail'], ['c', 'b', 'a'], 'after the handler');
        $response = $worker->request(parameters('/admin/closed/x'));
        check([$response->status, $response->body], [403, 'closed'], 'one that responds');
        $worker->stop();
    },
    'all kinds of responses' => static function (Server $server): void {
        $worker = $server->worker('native', NATIVE);
        $response = $worker->request(parameters('/text'));
        check([$response->status, $response->field('content-type')], [201, 'text/plain; charset=utf-8'], 'text');
        check($response->fields['set-cookie'], ['c=%C3%A4%20b; Path=/; SameSite=Lax; Max-Age=60; Secure; HttpOnly', 'd=e; Path=/; SameSite=Lax; HttpOnly'], 'cookies');
        $response = $worker->request(parameters('/redirect'));
        check([$response->status, $response->field('location')], [303, '/there'], 'redirect');
        $response = $worker->request(parameters('/file'));
        check($response->field('x-sendfile'), '/srv/x.pdf', 'file');
        check($response->field('content-disposition'), "attachment; filename=\"___x.pdf\"; filename*=UTF-8''%C3%84%22x.pdf", 'name');
        $response = $worker->request(parameters('/stream'));
        check([$response->body, $response->streamed, $response->chunks], ['onetwothree', true, 3], 'stream');
        $response = $worker->request(parameters('/events'));
        check([$response->field('content-type'), $response->field('x-apus-events')], ['text/event-stream;charset=UTF-8', 'news, user:1'], 'events');
        check($worker->request(parameters('/split'))->status, 500, 'a line end in a field');
        check($worker->request(parameters('/session', ['HTTP_COOKIE' => 'PHPSESSID=aaaaaaaaaaaaaaaaaaaaaaaaaa']))->body, '1', 'session');
        $worker->stop();
    },
    'views' => static function (Server $server): void {
        $worker = $server->worker('native', NATIVE);
        $expected = "<h1>&lt;T&gt;</h1>\n<p title=\"a&quot;b&apos;c&amp;\">part 1 a&quot;b&apos;c&amp;</p>\n";
        check($worker->request(parameters('/view'))->body, $expected, 'body');
        $response = $worker->request(parameters('/view-throws'));
        check([$response->status, $response->body], [422, 'handled in a view /view-throws'], 'one that throws');
        check($worker->request(parameters('/view'))->body, $expected, 'the next');
        $worker->stop();
    },
    'the properties of a request' => static function (Server $server): void {
        $worker = $server->worker('native', NATIVE);
        $who = $worker->request(parameters('/who?q=1', ['HTTPS' => 'on', 'HTTP_COOKIE' => 'c=d']))->json();
        check($who, ['127.0.0.1', true, 'tests', 'd', '1', '/who', '/who?q=1', 'example.org'], 'who');
        $json = ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'application/json'];
        check($worker->request(parameters('/json', $json), '{"a":[1]}')->json(), ['got' => ['a' => [1]], 'a' => [1]], 'JSON');
        check($worker->request(parameters('/json', $json), '{"a"')->status, 400, 'broken JSON');
        $body = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"n.txt\"\r\nContent-Type: text/plain\r\n\r\nfile\r\n"
            . "--b\r\nContent-Disposition: form-data; name=\"t\"\r\n\r\ntext\r\n--b--\r\n";
        $response = $worker->request(parameters('/upload', ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'multipart/form-data; boundary=b']), $body);
        check($response->json(), ['n.txt', 'text/plain', 4, 'file', null, 'text'], 'upload');
        check($worker->hello['uploads'], 'yes', 'uploads');
        $worker->stop();
    },
    'exceptions become responses, with details only in development' => static function (Server $server): void {
        $worker = $server->worker('native', NATIVE);
        $response = $worker->request(parameters('/throw'));
        check($response->status, 500, 'status');
        check(str_contains($response->body, 'secret'), false, $response->body);
        has($worker->logs[0]['text'], 'secret reason', 'log');
        check($worker->logs[0]['level'], 3, 'level');
        $response = $worker->request(parameters('/teapot'));
        check([$response->status, $response->field('x-pot')], [418, '1'], 'HttpException');
        has($response->body, 'I am &lt;b&gt;', 'body');
        check($worker->request(parameters('/teapot', ['HTTP_ACCEPT' => 'application/json']))->json(), ['status' => 418, 'error' => 'I am <b>'], 'as JSON');
        $response = $worker->request(parameters('/handled'));
        check([$response->status, $response->body], [422, 'handled known /handled'], 'by its class');
        $worker->stop();
        $worker = $server->worker('native', NATIVE, ['APUS_ENV' => 'development']);
        has($worker->request(parameters('/throw?<x>'))->body, 'secret reason', 'development');
        $worker->stop();
    },
    'a database in SQLite' => static function (Server $server): void {
        $worker = $server->worker('native', NATIVE, ['TEST_DSN' => "sqlite:{$server->folder}/" . bin2hex(random_bytes(4))]);
        check($worker->request(parameters('/db'))->json(), [2, ['name' => 'two'], null, 2, 2], 'rows');
        check($worker->request(parameters('/db/open'))->body, 'open', 'an open transaction');
        has($worker->logs[0]['text'] ?? '', 'open transaction', 'log');
        check($worker->request(parameters('/db/count'))->body, '2', 'it was rolled back');
        check($worker->request(parameters('/db/transaction?id=3'))->body, 'done', 'transaction');
        check($worker->request(parameters('/db/transaction?id=4&fail'))->status, 422, 'one that fails');
        check($worker->request(parameters('/db/count'))->body, '3', 'all or nothing');
        $worker->stop();
    },
    'a database in MariaDB, whose connection gets lost' => static function (Server $server): void {
        $worker = $server->worker('native', NATIVE, MariaDb::get()->parameters());
        check($worker->request(parameters('/db'))->json(), [2, ['name' => 'two'], null, 2, 2], 'rows');
        $id = $worker->request(parameters('/db/id'))->body;
        check($worker->request(parameters('/db/id'))->body, $id, 'the connection is kept');
        check($worker->request(parameters('/db/lose'))->json(), [2], 'it is opened again');
        has($worker->logs[0]['text'] ?? '', 'was lost', 'log');
        check($worker->request(parameters('/db/id'))->body !== $id, true, 'another connection');
        check($worker->request(parameters('/db/lose?in=transaction'))->status, 500, 'not within a transaction');
        check($worker->request(parameters('/db/count'))->body, '2', 'nothing was done');
        check($worker->request(parameters('/db/transaction?id=3'))->body, 'done', 'the next transaction');
        $worker->stop();
    },
    'a cache' => static function (Server $server): void {
        $worker = $server->worker('native', NATIVE);
        $one = $worker->request(parameters('/cache'))->body;
        check($worker->request(parameters('/cache'))->body, $one, 'remembered');
        check($worker->request(parameters('/cache/delete'))->body, 'gone', 'deleted');
        $two = $worker->request(parameters('/cache?ttl=0.001'))->body;
        check($two !== $one, true, 'made anew');
        usleep(2000);
        check($worker->request(parameters('/cache'))->body !== $two, true, 'its time was over');
        check($worker->request(parameters('/cache/many'))->body, '29999', 'many');
        check($worker->memory < 16000000, true, "memory {$worker->memory}");
        $worker->stop();
    },
    'log lines' => static function (Server $server): void {
        $worker = $server->worker('native', NATIVE);
        $worker->request(parameters('/log'));
        check($worker->logs, [['level' => 6, 'text' => 'said {"a":1,"b":"ü\n"}'], ['level' => 3, 'text' => 'wrong']], 'logs');
        $worker->stop();
    },
    'tasks and timers' => static function (Server $server): void {
        $worker = $server->worker('native', NATIVE);
        check($worker->ready, "sockets: 1\ntimer: tick 250\n", 'READY');
        check($worker->request(parameters('/task'))->body, 'queued', 'body');
        check($worker->commands, [['kind' => 2, 'flags' => 0, 'name' => 'mail', 'bytes' => pack('V', 1500) . '{"to":"x"}']], 'commands');
        check($worker->event(['kind' => 'task', 'name' => 'mail', 'id' => '1'], '{"to":"x"}')->status, 200, 'task');
        has($worker->logs[0]['text'], '"to":"x"', 'log');
        check($worker->event(['kind' => 'task', 'name' => 'fails'], 'null')->status, 500, 'one that fails');
        check($worker->event(['kind' => 'task', 'name' => 'unknown'], 'null')->status, 500, 'one that nobody knows');
        check($worker->event(['kind' => 'timer', 'name' => 'tick'])->status, 200, 'timer');
        check($worker->logs[0]['text'], 'tick', 'log');
        $response = $worker->request(parameters('/after'));
        check([$response->body, $response->busy], ['answered', true], 'after');
        check([ord($worker->expect(LOG)['payload'][0]), ord($worker->expect(LOG)['payload'][0])], [6, 3], 'what it logs');
        $worker->expect(READY);
        check($worker->request(parameters('/'))->body, '<p>home</p>', 'the next');
        $worker->stop();
    },
    'sockets and channels' => static function (Server $server): void {
        $worker = $server->worker('native', NATIVE);
        $open = ['kind' => 'ws_open', 'socket' => 's1'];
        check($worker->event($open + parameters('/chat/x?token=no'))->status, 401, 'refused');
        check($worker->event($open + parameters('/none'))->status, 404, 'no such path');
        check($worker->event($open + parameters('/chat/x?token=ok&name=Ada'))->status, 101, 'taken');
        check($worker->commands, [
            ['kind' => 3, 'flags' => 0, 'name' => 'chat:x', 'bytes' => 's1'],
            ['kind' => 7, 'flags' => 0, 'name' => 's1', 'bytes' => '{"name":"Ada"}'],
            ['kind' => 6, 'flags' => 0, 'name' => 's1', 'bytes' => 'welcome'],
        ], 'commands of open');
        $event = ['socket' => 's1', 'path' => '/chat/x?token=ok&name=Ada', 'data' => '{"name":"Ada"}', 'type' => 'text'];
        check($worker->event($event + ['kind' => 'ws_message'], 'hi')->status, 200, 'message');
        check($worker->commands, [
            ['kind' => 1, 'flags' => 0, 'name' => 'chat:x', 'bytes' => 'Ada: hi'],
            ['kind' => 1, 'flags' => 2, 'name' => 'news', 'bytes' => "event: chat\nid: 7\ndata: line 1\ndata: line 2\n\n"],
            ['kind' => 6, 'flags' => 1, 'name' => 'other', 'bytes' => "\x00\xff"],
        ], 'commands of message');
        $worker->event($event + ['kind' => 'ws_message'], 'bye');
        check($worker->commands, [
            ['kind' => 4, 'flags' => 0, 'name' => 'chat:x', 'bytes' => 's1'],
            ['kind' => 5, 'flags' => 0, 'name' => 's1', 'bytes' => pack('v', 4000) . 'bye'],
        ], 'commands of bye');
        $worker->event($event + ['kind' => 'ws_close', 'code' => '1001']);
        check($worker->commands[0]['bytes'], 'left 1001', 'close');
        $worker->stop();
    },
    'the same code under plain FastCGI' => static function (Server $server): void {
        $script = realpath(APP . '/../../../examples/php/public/index.php');
        $parameters = static fn (string $target): array => ['SCRIPT_FILENAME' => $script, 'HTTP_X_REQUEST_ID' => 'same'] + parameters($target);
        $worker = $server->worker('native', $script);
        foreach (['/users/5', '/users/5000', '/hello', '/none'] as $target) {
            [$status, $fields, $body] = $server->plain($parameters($target));
            $response = $worker->request($parameters($target));
            check([$response->status, $response->body], [$status, $body], $target);
            check($response->field('x-request-id'), $fields['x-request-id'][0] ?? null, 'X-Request-Id');
            $target === '/users/5' && check([$status, $response->field('x-request-id')], [200, 'same'], 'status');
        }
        $worker->stop();
    },
];
