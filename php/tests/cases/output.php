<?php

/** Status, field lines and content; buffers, streams, and clients that go away. */

declare(strict_types=1);

namespace Apus\Tests;

return [
    'status, field lines and cookies are those of header() and setcookie()' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        for ($i = 0; $i < 2; $i++) {
            $answer = $worker->request(parameters('/headers'));
            check($answer->status, 404, 'status');
            check($answer->fields['set-cookie'], ['a=b%20c; path=/; HttpOnly', 'd=e'], 'cookies');
            check($answer->fields['x-one'], ['1', '2'], 'X-One');
            check($answer->field('x-gone'), null, 'X-Gone');
            check($answer->field('content-type'), 'text/html; charset=UTF-8', 'type');
            check($answer->json()[0], false, 'headers_sent()');
            $answer = $worker->request(parameters('/status-line'));
            check([$answer->status, $answer->field('content-type')], [410, 'text/plain;charset=UTF-8'], 'status line');
            $answer = $worker->request(parameters('/location'));
            check([$answer->status, $answer->field('location')], [302, '/there'], 'redirect');
            check($worker->request(parameters('/hello'))->fields, ['content-type' => ['text/html; charset=UTF-8']], 'nothing is left');
            check($worker->request(parameters('/nothing'))->status, 404, 'status');
        }
        check($worker->request(parameters('/hello', ['REQUEST_METHOD' => 'HEAD']))->status, 200, 'HEAD');
        $worker->stop();
    },
    'buffers are unwound in order' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        check($worker->request(parameters('/nested'))->content, '<a[b]>', 'content');
        check($worker->request(parameters('/unwind-flush'))->content, 'kept and more', 'content');
        check($worker->request(parameters('/unwind'))->field('x-after'), '1', 'all buffers removed, nothing printed');
        check($worker->request(parameters('/hello'))->content, 'hello', 'the next');
        $worker->stop();
    },
    'a buffer that may not be removed costs the worker' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $answer = $worker->request(parameters('/stuck'));
        check([$answer->status, $answer->content, $worker->bye], [200, 'below ABOVE', 'exit'], 'answer');
        $worker->end();
    },
    'a callback that throws is an error of this request' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $answer = $worker->request(parameters('/callback-throws'));
        check($answer->status, 500, 'status');
        has($answer->content, 'thrown in a callback', 'content');
        check($worker->request(parameters('/nested'))->content, '<a[b]>', 'the next');
        $worker->stop();
    },
    'what is printed when all buffers were removed' => [['own', 'pool'], static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $answer = $worker->request(parameters('/unwind?say=download'));
        check([$answer->content, $answer->field('x-after')], ['lostdownload', '1'], 'level 0 is seen, and the buffer is still there');
        check($worker->request(parameters('/hello'))->content, 'hello', 'the next');
        $worker->stop();
    }],
    'what is printed past the runtime is an error, and said so' => [['cgi', 'fpm'], static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $answer = $worker->request(parameters('/unwind?say=download'));
        check($answer->status, 500, 'status');
        has($worker->logs[0]['text'], 'after all output buffers were removed', 'log');
        check($worker->bye, 'error', 'BYE');
        $worker->end();
    }],
    'large content is streamed' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $answer = $worker->request(parameters('/large'));
        $expected = '';
        for ($i = 0; $i < 40; $i++) {
            $expected .= str_repeat(chr(65 + $i % 26), 25000);
        }
        check(md5($answer->content), md5($expected), 'content');
        check($answer->streamed && $answer->chunks > 2, true, 'chunks');
        check($answer->field('x-large'), '1', 'X-Large');
        $answer = $worker->request(parameters('/once-large'));
        check(strlen($answer->content), 5000000, 'length');
        check($worker->request(parameters('/hello'))->content, 'hello', 'the next');
        $worker->stop();
    },
    'what is flushed is sent at once' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $worker->begin(parameters('/flush'));
        $frame = $worker->expect(RESPONSE);
        check($frame['flags'], 1, 'flags');
        check(Answer::of($frame['payload'])->content, 'one', 'first');
        check($worker->expect(CHUNK)['payload'], 'two', 'second');
        check($worker->expect(CHUNK)['payload'], 'three', 'third');
        check($worker->expect(CHUNK), ['type' => CHUNK, 'flags' => 1, 'payload' => ''], 'the end');
        $answer = $worker->request(parameters('/flush-native'));
        check($answer->content, 'onetwo', 'content');
        check($answer->streamed, $server->replaces(), 'flush() where it is replaced');
        $worker->stop();
    },
    'a script whose client goes away comes to its end' => static function (Server $server): void {
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
        check($worker->request(parameters('/hello'))->content, 'hello', 'the next');
        $worker->stop();
    },
    'content is not waited for when its client is gone' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $file = $server->folder . '/read';
        $worker->begin(parameters('/flush-then-read?file=' . urlencode($file), ['REQUEST_METHOD' => 'PUT']), '', true);
        $worker->expect(RESPONSE);
        $worker->send(CANCEL);
        while (($worker->expect(CHUNK)['flags'] & 1) === 0) {
        }
        check(file_get_contents($file), 'read 0', 'content');
        check($worker->request(parameters('/hello'))->content, 'hello', 'the next');
        $worker->stop();
    },
    'one that has none is ended' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $worker->begin(parameters('/endless'));
        $worker->expect(RESPONSE);
        $worker->send(CANCEL);
        while (($worker->expect(CHUNK)['flags'] & 1) === 0) {
        }
        check($worker->expect(BYE)['payload'], 'exit', 'BYE');
        $worker->end();
    },
    'also one that never flushes' => static function (Server $server): void {
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
    'an answer can be finished before the work' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $file = $server->folder . '/early';
        $answer = $worker->request(parameters('/early?file=' . urlencode($file)));
        check([$answer->content, $answer->busy], ['answer', true], 'answer');
        $worker->expect(READY);
        check(file_get_contents($file), 'after', 'the work after it');
        check($worker->request(parameters('/hello'))->content, 'hello', 'the next');
        $worker->stop();
    },
    'the fastcgi_finish_request() of PHP-FPM costs the worker, not the answer' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $worker->begin(parameters('/early-native'));
        if ($server->isFpm()) {
            // It waits for the server to close the FastCGI connection.
            $worker->boot->wait();
            $worker->boot->close();
            check($worker->answer()->content, 'answer', 'content');
            check($worker->bye, 'error', 'BYE');
            $worker->close();
            return;
        }
        check($worker->answer()->content, 'answer', 'content');
        $worker->expect(READY);
        $worker->stop();
    },
    'what runs at the end of a request' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        check($worker->request(parameters('/at-end'))->content, 'begin end', 'content');
        check($worker->request(parameters('/hello'))->content, 'hello', 'the next');
        $worker->stop();
    },
    'a warning is in the content, as display_errors says' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        has($worker->request(parameters('/notice'))->content, "Undefined variable \$undefined", 'content');
        $worker->stop();
    },
];
