<?php

/** Status, header fields and body; buffers, streams, and clients that disconnect. */

declare(strict_types=1);

namespace Apus\Tests;

return [
    'status, field lines and cookies are set by header() and setcookie()' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        for ($i = 0; $i < 2; $i++) {
            $response = $worker->request(parameters('/headers'));
            check($response->status, 404, 'status');
            check($response->fields['set-cookie'], ['a=b%20c; path=/; HttpOnly', 'd=e'], 'cookies');
            check($response->fields['x-one'], ['1', '2'], 'X-One');
            check($response->field('x-gone'), null, 'X-WorkerGone');
            check($response->field('content-type'), 'text/html; charset=UTF-8', 'type');
            check($response->json()[0], false, 'headers_sent()');
            $response = $worker->request(parameters('/status-line'));
            check([$response->status, $response->field('content-type')], [410, 'text/plain;charset=UTF-8'], 'status line');
            $response = $worker->request(parameters('/location'));
            check([$response->status, $response->field('location')], [302, '/there'], 'redirect');
            check($worker->request(parameters('/hello'))->fields, ['content-type' => ['text/html; charset=UTF-8']], 'nothing is left');
            check($worker->request(parameters('/nothing'))->status, 404, 'status');
        }
        check($worker->request(parameters('/hello', ['REQUEST_METHOD' => 'HEAD']))->status, 200, 'HEAD');
        $worker->stop();
    },
    'buffers are unwound in order' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        check($worker->request(parameters('/nested'))->body, '<a[b]>', 'body');
        check($worker->request(parameters('/unwind-flush'))->body, 'kept and more', 'body');
        check($worker->request(parameters('/unwind'))->field('x-after'), '1', 'all buffers removed, nothing printed');
        check($worker->request(parameters('/hello'))->body, 'hello', 'the next');
        $worker->stop();
    },
    'a buffer that cannot be removed ends the worker' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $response = $worker->request(parameters('/stuck'));
        check([$response->status, $response->body, $worker->bye], [200, 'below ABOVE', 'exit'], 'response');
        $worker->end();
    },
    'each request has the buffer of php.ini, as without the runtime' => [['own', 'pool'], static function (Server $server): void {
        foreach (['output_buffering' => ['0', '1', '100', '4096'], 'output_handler' => ['mb_output_handler']] as $name => $values) {
            foreach ($values as $value) {
                $settings = [$name => $value] + ['output_buffering' => '0'];
                [$plain, $resident] = [new Server('cgi', settings: $settings), new Server($server->model, settings: $settings)];
                $worker = $resident->worker('classic', APP . '/classic/buffers.php');
                foreach (['download', 'loop', 'clean', 'much', 'end', 'nested', 'flush', 'download'] as $do) {
                    $parameters = parameters("/?do=$do", ['SCRIPT_FILENAME' => APP . '/classic/buffers.php']);
                    check($worker->request($parameters)->body, $plain->plain($parameters)[2], "$name=$value: $do");
                }
                $worker->stop();
                $plain->stop();
                $resident->stop();
            }
        }
    }],
    'a callback that throws fails only its request' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $response = $worker->request(parameters('/callback-throws'));
        check($response->status, 200, 'status');
        has($response->body, 'thrown in a callback', 'body');
        check($worker->request(parameters('/nested'))->body, '<a[b]>', 'the next');
        $worker->stop();
    },
    'output after all buffers were removed' => [['own', 'pool'], static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $response = $worker->request(parameters('/unwind?say=download'));
        check([$response->body, $response->field('x-after')], ['download', '1'], 'level 0 is seen, and the buffer is still there');
        check($worker->request(parameters('/hello'))->body, 'hello', 'the next');
        $worker->stop();
    }],
    'output that bypasses the runtime is a logged error' => [['cgi', 'fpm'], static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $response = $worker->request(parameters('/unwind?say=download'));
        check($response->status, 500, 'status');
        has($worker->logs[0]['text'], 'after all output buffers were removed', 'log');
        check($worker->bye, 'error', 'BYE');
        $worker->end();
    }],
    'a large body is streamed' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $response = $worker->request(parameters('/large'));
        $expected = '';
        for ($i = 0; $i < 40; $i++) {
            $expected .= str_repeat(chr(65 + $i % 26), 25000);
        }
        check(md5($response->body), md5($expected), 'body');
        check($response->streamed && $response->chunks > 2, true, 'chunks');
        check($response->field('x-large'), '1', 'X-Large');
        $response = $worker->request(parameters('/once-large'));
        check(strlen($response->body), 5000000, 'length');
        check($worker->request(parameters('/hello'))->body, 'hello', 'the next');
        $worker->stop();
    },
    'functions of FrankenPHP send early hints, and return the fields of the request and of the response' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $worker->begin(parameters('/early-hints', ['HTTP_X_ASKED' => 'yes']));
        foreach ([103, 199] as $status) {
            $interim = $worker->expect(INTERIM)['payload'];
            check(unpack('v', $interim)[1], $status, 'status');
            check(substr($interim, 2), "Link: </style.css>; rel=preload; as=style\r\n", 'fields');
        }
        $response = $worker->response();
        [$sent, $asked, $fields, $again] = $response->json();
        check([$response->status, $sent], [200, [1, 0, 1]], 'what was sent');
        check($asked['X-Asked'] ?? null, 'yes', 'a field of the request');
        check([$fields['Link'], $fields['X-Later']], ['</style.css>; rel=preload; as=style', '2'], 'fields of the response');
        check($again['X-Later'], '2', 'apache_response_headers()');
        check($worker->logs, [
            ['level' => 4, 'text' => 'a line {"a":1}'],
            ['level' => 6, 'text' => 'another'],
            ['level' => 7, 'text' => 'a detail'],
        ], 'log');
        $response = $worker->request(parameters('/head-first'));
        check([$response->status, $response->streamed, $response->field('x-first'), $response->body], [404, true, '1', '[0,0]'], 'the head');
        check($worker->request(parameters('/hello'))->status, 200, 'the next');
        $worker->stop();
    },
    'flushed output is sent at once' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $worker->begin(parameters('/flush'));
        $frame = $worker->expect(RESPONSE);
        check($frame['flags'], 1, 'flags');
        check(Response::of($frame['payload'])->body, 'one', 'first');
        check($worker->expect(CHUNK)['payload'], 'two', 'second');
        check($worker->expect(CHUNK)['payload'], 'three', 'third');
        check($worker->expect(CHUNK), ['type' => CHUNK, 'flags' => 1, 'payload' => ''], 'the end');
        $response = $worker->request(parameters('/flush-native'));
        check($response->body, 'onetwo', 'body');
        check($response->streamed, true, 'ob_flush() and flush()');
        $worker->stop();
    },
    'a script whose client disconnects can finish' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $file = $server->folder . '/long';
        $worker->begin(parameters('/long?file=' . urlencode($file)));
        $worker->expect(RESPONSE);
        $worker->send(CANCEL);
        $chunks = 0;
        while (($worker->expect(CHUNK)['flags'] & 1) === 0) {
            $chunks++;
        }
        check($chunks < 4000, true, "$chunks chunks");
        check(is_file($file), true, 'the end of the script');
        check($worker->request(parameters('/hello'))->body, 'hello', 'the next');
        $worker->stop();
    },
    'a script does not wait for the body of a client that disconnected' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $file = $server->folder . '/read';
        $worker->begin(parameters('/flush-then-read?file=' . urlencode($file), ['REQUEST_METHOD' => 'PUT']), '', true);
        $worker->expect(RESPONSE);
        $worker->send(CANCEL);
        while (($worker->expect(CHUNK)['flags'] & 1) === 0) {
        }
        check(file_get_contents($file), 'read 0', 'content');
        check($worker->request(parameters('/hello'))->body, 'hello', 'the next');
        $worker->stop();
    },
    'a script without a client that does not finish is ended' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $worker->begin(parameters('/endless'));
        $worker->expect(RESPONSE);
        $worker->send(CANCEL);
        while (($worker->expect(CHUNK)['flags'] & 1) === 0) {
        }
        check($worker->expect(BYE)['payload'], 'exit', 'BYE');
        $worker->end();
    },
    'a script without a client that never flushes is ended' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $worker->begin(parameters('/endless-print'));
        $worker->expect(RESPONSE);
        $worker->send(CANCEL);
        do {
            $frame = $worker->expect(CHUNK);
        } while (($frame['flags'] & 1) === 0);
        check($worker->expect(BYE)['payload'], 'error', 'BYE');
        $worker->end();
    },
    'a response can be finished before the work' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $file = $server->folder . '/early';
        $response = $worker->request(parameters('/early?file=' . urlencode($file)));
        check([$response->body, $response->busy], ['answer', true], 'response');
        $worker->expect(READY);
        check(file_get_contents($file), 'after', 'the work after it');
        check($worker->request(parameters('/hello'))->body, 'hello', 'the next');
        $worker->stop();
    },
    'the fastcgi_finish_request() of PHP-FPM ends the worker, but not the response' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $worker->begin(parameters('/early-native'));
        if ($server->isFpm()) {
            // It waits for the server to close the FastCGI connection.
            $worker->boot->wait();
            $worker->boot->close();
            check($worker->response()->body, 'answer', 'body');
            check($worker->bye, 'error', 'BYE');
            $worker->close();
            return;
        }
        check($worker->response()->body, 'answer', 'body');
        $worker->expect(READY);
        $worker->stop();
    },
    'functions at the end of a request' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        check($worker->request(parameters('/at-end'))->body, 'begin end', 'body');
        check($worker->request(parameters('/hello'))->body, 'hello', 'the next');
        $worker->stop();
    },
    'display_errors puts a warning into the body' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        has($worker->request(parameters('/notice'))->body, "Undefined variable \$undefined", 'body');
        $worker->stop();
    },
];
