<?php

/** exit(), exceptions and fatal errors: the output is sent once, and the process is reused. */

declare(strict_types=1);

namespace Apus\Tests;

return [
    'exit() sends the output, also the output of shutdown functions' => static function (Server $server): void {
        for ($i = 0; $i < 3; $i++) {
            $worker = $server->worker('worker', APP . '/worker.php');
            check($worker->request(parameters('/hello'))->body, 'hello', 'body');
            $response = $worker->request(parameters('/exit'));
            check($response->body, 'before said shutdown', 'body');
            check([$response->status, $response->field('x-exit')], [201, '1'], 'status and X-Exit');
            check($worker->bye, 'exit', 'BYE');
            $worker->boot->wait();
            check($worker->boot->response()[2], '', 'STDOUT of the boot');
            $worker->close();
        }
    },
    'exit() in a shutdown function' => static function (Server $server): void {
        $worker = $server->worker('classic', APP . '/index.php');
        $response = $worker->request(parameters('/exit-twice'));
        check($response->body, '<before shutdown>', 'a shutdown function of a process that serves one request');
        $worker->end();
        $worker = $server->worker('worker', APP . '/broken/exits-twice.php');
        $response = $worker->request(parameters('/'));
        check([$response->body, $response->field('x-exit')], ['before shutdown', '2'], 'body');
        check($worker->bye, 'exit', 'BYE');
        $worker->boot->wait();
        check($worker->boot->response()[2], '', 'STDOUT of the boot');
        $worker->close();
    },
    'an uncaught exception fails only its request' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $response = $worker->request(parameters('/throw'));
        check($response->status, 200, 'status of an error that is shown, as in PHP');
        has($response->body, 'before ', 'body');
        has($response->body, 'thrown in a test', 'body');
        $response = $worker->request(parameters('/throw-handled'));
        check([$response->status, $response->body], [503, 'handled x'], 'with a handler');
        has($worker->request(parameters('/throw'))->body, 'thrown in a test', 'the handler is gone');
        check($worker->request(parameters('/throw-hidden'))->status, 500, 'status of an error that is not shown');
        $response = $worker->request(parameters('/call-undefined'));
        has($response->body, 'undefined_function_of_a_test', 'body');
        check($worker->bye, null, 'BYE');
        check($worker->request(parameters('/hello'))->body, 'hello', 'the next');
        $worker->stop();
        has($worker->boot->stderr . $server->output(), 'thrown in a test', 'log');
    },
    'a fatal error has a response, and the process is reused' => static function (Server $server): void {
        foreach (['fatal' => 'abstract methods', 'memory' => 'Allowed memory size', 'time' => 'Maximum execution time'] as $action => $message) {
            $worker = $server->worker('worker', APP . '/worker.php');
            $pid = $worker->hello['pid'];
            $response = $worker->request(parameters("/$action"));
            check($response->status, 200, "$action: status");
            has($response->body, $message, "$action: content");
            check($worker->bye, 'error', "$action: BYE");
            $worker->end();
            $next = $server->worker('worker', APP . '/worker.php');
            check($next->request(parameters('/hello'))->body, 'hello', 'the next');
            $next->stop();
            check(is_dir("/proc/$pid"), true, "$action: the process lives");
        }
    },
    'the error log goes to the pipe of the server at once, unless php.ini sets a file' => [['cgi', 'own'], static function (Server $server): void {
        $pipe = "$server->folder/error.log";
        posix_mkfifo($pipe, 0600);
        $reader = fopen($pipe, 'r+');
        stream_set_blocking($reader, false);
        $worker = $server->worker('worker', APP . '/worker.php', ['APUS_ERROR_LOG' => $pipe]);
        $worker->request(parameters('/notice'));
        has((string) fread($reader, 65536), 'Undefined variable $undefined in ', 'a warning, when the response is there');
        $worker->request(parameters('/throw'));
        has((string) fread($reader, 65536), 'PHP Fatal error:  Uncaught RuntimeException: thrown in a test', 'an exception');
        try {
            $worker->request(parameters('/log-kill'));
        } catch (WorkerGone) {
        }
        check(preg_replace('/^\[.*?\] /', '', (string) fread($reader, 65536)), "before the end\n", 'a message of a process that was killed');
        $worker->close();
        $file = "$server->folder/own.log";
        $other = new Server($server->model, settings: ['error_log' => $file]);
        try {
            $worker = $other->worker('worker', APP . '/worker.php', ['APUS_ERROR_LOG' => $pipe]);
            $worker->request(parameters('/notice'));
            has((string) file_get_contents($file), 'Undefined variable', 'the file of php.ini');
            check(fread($reader, 65536), '', 'the pipe');
            $worker->stop();
        } finally {
            $other->stop();
        }
    }],
    'max_execution_time of php.ini holds for each request, and counts CPU time' => [['own', 'fpm'], static function (Server $server): void {
        $limited = new Server($server->model, settings: ['max_execution_time' => '1']);
        try {
            $worker = $limited->worker('worker', APP . '/worker.php');
            // More than the limit together, and waiting does not count.
            foreach ([['seconds' => '0.6'], ['seconds' => '0.6', 'sleep' => '600000'], ['seconds' => '1.1', 'limit' => '0']] as $query) {
                check($worker->request(parameters('/burn?' . http_build_query($query)))->body, 'burnt', 'below the limit');
            }
            $response = $worker->request(parameters('/burn?seconds=60'));
            check($response->status, 200, 'status of an error that is shown');
            has($response->body, 'Maximum execution time of 1 second exceeded', 'body');
            check($worker->bye, 'error', 'BYE');
            $worker->end();
            $next = $limited->worker('worker', APP . '/worker.php');
            check($next->request(parameters('/burn?seconds=0.1'))->body, 'burnt', 'the next worker');
            $next->stop();
        } finally {
            $limited->stop();
        }
    }],
    'a worker whose max_execution_time is fixed ends before it is used up' => [['fpm'], static function (Server $server): void {
        $limited = new Server('fpm', settings: ['max_execution_time' => '2'], areFixed: true);
        try {
            $worker = $limited->worker('worker', APP . '/worker.php');
            check($worker->request(parameters('/burn?seconds=0.1'))->body, 'burnt', 'body');
            check($worker->bye, null, 'BYE below a half');
            check($worker->request(parameters('/burn?seconds=1.1'))->body, 'burnt', 'body');
            check($worker->bye, 'time', 'BYE above a half');
            $worker->end();
        } finally {
            $limited->stop();
        }
    }],
    'an error after a part of the response aborts it' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $response = $worker->request(parameters('/flush-throw'));
        check([$response->status, $response->broken, substr($response->body, 0, 4)], [200, true, 'half'], 'exception');
        $response = $worker->request(parameters('/flush'));
        check([$response->body, $response->broken], ['onetwothree', false], 'the next');
        $response = $worker->request(parameters('/flush-fatal'));
        check([$response->broken, $worker->bye], [true, 'error'], 'fatal error');
        $worker->end();
    },
    'a killed process closes its connection without BYE' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        try {
            $worker->request(parameters('/kill'));
        } catch (WorkerGone $gone) {
            has($gone->getMessage(), 'is gone', 'end of file');
        }
        $worker->close();
        $next = $server->worker('worker', APP . '/worker.php');
        check($next->request(parameters('/hello'))->body, 'hello', 'the next');
        $next->stop();
    },
    'a request that waits behind one that exits is not lost' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $worker->raw(Worker::frameOf(parameters('/exit')) . Worker::frameOf(parameters('/hello')));
        check($worker->response()->body, 'before said shutdown', 'body');
        check($worker->bye, 'exit', 'BYE says that the second was not worked on');
        $worker->boot->wait();
        $worker->close();
    },
];
