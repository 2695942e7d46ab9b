<?php

/** Boot, ready, stop, and the ways in which a worker ends. */

declare(strict_types=1);

namespace Apus\Tests;

return [
    'sends HELLO and READY' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/hello.php');
        check($worker->hello['wire'], '1', 'wire');
        check($worker->hello['mode'], 'worker', 'mode');
        check($worker->hello['script'], realpath(APP . '/hello.php'), 'script');
        check($worker->hello['sapi'], $server->isFpm() ? 'fpm-fcgi' : 'cgi-fcgi', 'sapi');
        check($worker->hello['uploads'], $server->replaces() ? 'yes' : 'no', 'uploads');
        check(is_dir("/proc/{$worker->hello['pid']}"), true, 'pid');
        check($worker->ready, '', 'READY');
        $worker->stop();
        check($worker->boot->response()[2], '', 'STDOUT of the boot');
        check($worker->boot->stderr, '', 'STDERR of the boot');
    },
    'responds to PING, and ignores the CANCEL of an earlier request' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/hello.php');
        $worker->send(PING, 'abc');
        check($worker->expect(PONG)['payload'], 'abc', 'PONG');
        $worker->send(CANCEL);
        $worker->send(PING);
        check($worker->expect(PONG)['payload'], '', 'PONG');
        check($worker->request(parameters('/'))->body, 'hello', 'body');
        $worker->stop();
    },
    'reads a request that comes byte by byte' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/hello.php');
        $serialized = serialize(parameters('/'));
        $frame = pack('VCCvV', strlen($serialized) + 4, REQUEST, 0, 0, strlen($serialized)) . $serialized;
        foreach ([...str_split(substr($frame, 0, 14)), substr($frame, 14, 40), substr($frame, 54)] as $part) {
            $worker->raw($part);
            usleep(1000);
        }
        check($worker->response()->body, 'hello', 'body');
        $worker->stop();
    },
    'accepts a number of parameters with leading zeros' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/hello.php');
        $serialized = preg_replace_callback('/^a:(\d+)/', static fn (array $match): string => sprintf('a:%05d', $match[1]), serialize(parameters('/')));
        $worker->send(REQUEST, pack('V', strlen($serialized)) . $serialized);
        check($worker->response()->body, 'hello', 'body');
        $worker->stop();
    },
    'ends when the server closes the connection, and the process boots again' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/hello.php');
        $worker->close();
        $next = $server->worker('worker', APP . '/hello.php');
        check($next->request(parameters('/'))->body, 'hello', 'body');
        $next->stop();
    },
    'ends after a violation of the protocol' => static function (Server $server): void {
        foreach ([pack('VCCv', 0, 99, 0, 0), pack('VCCv', 1 << 30, REQUEST, 0, 0) . 'xxxx', pack('VCCvV', 8, REQUEST, 0, 0, 100) . 'xxxx',
            pack('VCCvV', 12, REQUEST, 0, 0, 8) . 'b:0;xxxx', pack('VCCvV', 24, REQUEST, 0, 0, 20) . 'O:8:"stdClass":0:{};', ] as $bytes) {
            $worker = $server->worker('worker', APP . '/hello.php');
            $worker->raw($bytes);
            $worker->end();
        }
    },
    'reports why it cannot boot' => static function (Server $server): void {
        foreach ([
            'missing.php' => 'does not exist',
            'broken/throws.php' => 'not today',
            'broken/syntax.php' => 'syntax error',
            'broken/exits.php' => 'ended before it was ready',
            'broken/returns.php' => 'ended before it was ready',
            'broken/handles.php' => 'handled not today',
        ] as $script => $reason) {
            $worker = $server->boot('worker', APP . "/$script");
            has($worker->expect(FAILED)['payload'], $reason, $script);
            $worker->boot->wait();
            $said = $worker->boot->stdout . $worker->boot->stderr;
            $script === 'broken/throws.php' && has($said, 'not today', 'what PHP said');
            $script === 'broken/handles.php' && has($said, 'handled not today', 'what the script said');
            $script === 'broken/exits.php' && has($said, 'a last word', 'what the script said');
            $worker->close();
        }
        $worker = $server->boot('magic', APP . '/hello.php');
        has($worker->expect(FAILED)['payload'], 'unknown mode', 'mode');
        $worker->end();
    },
    'output during the boot goes to the log' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/broken/talks.php');
        has($worker->logs[0]['text'], 'talking at boot', 'log');
        check($worker->request(parameters('/'))->body, 'hello', 'body');
        $worker->stop();
    },
    'reports a script that ends by itself' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/broken/two.php');
        check($worker->request(parameters('/'))->body, 'hello', 'body');
        check($worker->request(parameters('/'))->body, 'hello', 'body');
        check($worker->expect(BYE)['payload'], 'exit', 'BYE');
        $worker->end();
    },
    'ends above its memory limit' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php', ['APUS_MEMORY' => '6000000']);
        for ($i = 0; $i < 10 && $worker->bye === null; $i++) {
            check($worker->request(parameters('/hold'))->body, 'held', 'body');
        }
        check($worker->bye, 'memory', 'BYE');
        check($i > 1 && $i < 4, true, "$i requests");
        $worker->end();
    },
    'a boot with changed code runs the new code' => static function (Server $server): void {
        $script = $server->folder . '/changing.php';
        $code = "<?php while (frankenphp_handle_request(function () { echo 'old'; })) {}";
        file_put_contents($script, $code);
        $worker = $server->worker('worker', $script);
        check($worker->request(parameters('/'))->body, 'old', 'body');
        file_put_contents($script, str_replace('old', 'new', $code));
        touch($script, time() + 10);
        $next = $server->worker('worker', $script, ['APUS_FRESH' => '1']);
        check($next->request(parameters('/'))->body, 'new', 'body');
        $worker->stop();
        $next->stop();
    },
    'a client cannot request the runtime' => static function (Server $server): void {
        [$status, , $body] = $server->plain(['SCRIPT_FILENAME' => RUNTIME, 'REQUEST_METHOD' => 'GET', 'SCRIPT_NAME' => '/apus.php']);
        check($status, 403, 'status');
        has($body, 'started by Apus', 'body');
    },
];
