<?php

/** exit(), exceptions and fatal errors: what was printed is sent once, and the process goes on. */

declare(strict_types=1);

namespace Apus\Tests;

return [
    'exit() sends what was printed, also by shutdown functions' => static function (Server $server): void {
        for ($i = 0; $i < 3; $i++) {
            $worker = $server->worker('worker', APP . '/worker.php');
            check($worker->request(parameters('/hello'))->content, 'hello', 'content');
            $answer = $worker->request(parameters('/exit'));
            check($answer->content, 'before said shutdown', 'content');
            check([$answer->status, $answer->field('x-exit')], [201, '1'], 'status and X-Exit');
            check($worker->bye, 'exit', 'BYE');
            $worker->boot->wait();
            check($worker->boot->answer()[2], '', 'STDOUT of the boot');
            $worker->close();
        }
    },
    'exit() in a shutdown function' => static function (Server $server): void {
        $worker = $server->worker('classic', APP . '/index.php');
        $answer = $worker->request(parameters('/exit-twice'));
        check($answer->content, '<before shutdown>', 'a shutdown function of a process that serves one request');
        $worker->end();
        $worker = $server->worker('worker', APP . '/broken/exits-twice.php');
        $answer = $worker->request(parameters('/'));
        check([$answer->content, $answer->field('x-exit')], ['before shutdown', '2'], 'content');
        check($worker->bye, 'exit', 'BYE');
        $worker->boot->wait();
        check($worker->boot->answer()[2], '', 'STDOUT of the boot');
        $worker->close();
    },
    'an exception is an error of this request only' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $answer = $worker->request(parameters('/throw'));
        check($answer->status, 500, 'status');
        has($answer->content, 'before ', 'content');
        has($answer->content, 'thrown in a test', 'content');
        $answer = $worker->request(parameters('/throw-handled'));
        check([$answer->status, $answer->content], [503, 'handled x'], 'with a handler');
        check($worker->request(parameters('/throw'))->status, 500, 'the handler is gone');
        $answer = $worker->request(parameters('/call-undefined'));
        has($answer->content, 'undefined_function_of_a_test', 'content');
        check($worker->bye, null, 'BYE');
        check($worker->request(parameters('/hello'))->content, 'hello', 'the next');
        $worker->stop();
        has($worker->boot->stderr . $server->output(), 'thrown in a test', 'log');
    },
    'a fatal error is answered, and the process goes on' => static function (Server $server): void {
        foreach (['fatal' => 'abstract methods', 'memory' => 'Allowed memory size', 'time' => 'Maximum execution time'] as $action => $message) {
            $worker = $server->worker('worker', APP . '/worker.php');
            $pid = $worker->hello['pid'];
            $answer = $worker->request(parameters("/$action"));
            check($answer->status, 500, "$action: status");
            has($answer->content, $message, "$action: content");
            check($worker->bye, 'error', "$action: BYE");
            $worker->end();
            $next = $server->worker('worker', APP . '/worker.php');
            check($next->request(parameters('/hello'))->content, 'hello', 'the next');
            $next->stop();
            check(is_dir("/proc/$pid"), true, "$action: the process lives");
        }
    },
    'an error after part of the answer was sent breaks it off' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $answer = $worker->request(parameters('/flush-throw'));
        check([$answer->status, $answer->broken, substr($answer->content, 0, 4)], [200, true, 'half'], 'exception');
        $answer = $worker->request(parameters('/flush'));
        check([$answer->content, $answer->broken], ['onetwothree', false], 'the next');
        $answer = $worker->request(parameters('/flush-fatal'));
        check([$answer->broken, $worker->bye], [true, 'error'], 'fatal error');
        $worker->end();
    },
    'a process that is killed leaves without a word' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        try {
            $worker->request(parameters('/kill'));
        } catch (Gone $gone) {
            has($gone->getMessage(), 'is gone', 'end of file');
        }
        $worker->close();
        $next = $server->worker('worker', APP . '/worker.php');
        check($next->request(parameters('/hello'))->content, 'hello', 'the next');
        $next->stop();
    },
    'a request that waits behind one that exits is not lost' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $worker->raw(Worker::frameOf(parameters('/exit')) . Worker::frameOf(parameters('/hello')));
        check($worker->answer()->content, 'before said shutdown', 'content');
        check($worker->bye, 'exit', 'BYE says that the second was not worked on');
        $worker->boot->wait();
        $worker->close();
    },
];
