<?php

/** Thousands of requests of all kinds: each gets its own response, and memory does not grow. */

declare(strict_types=1);

namespace Apus\Tests;

return [
    '10,000 mixed requests leave no state' => [['own', 'fpm'], static function (Server $server): void {
        mt_srand(7);
        $boot = static fn (): Worker => $server->worker('worker', APP . '/worker.php');
        $worker = $boot();
        $first = $worker->request(parameters('/state'))->body;
        $memory = 0;
        $sessions = [];
        $boots = 1;
        $reference = null;
        for ($i = 1; $i <= 10000; $i++) {
            $token = "t$i";
            switch (mt_rand(0, 19)) {
                case 0:
                    check($worker->request(parameters('/spoil?x=1'))->body, 'oneTWO', $token);
                    check($worker->request(parameters('/state'))->body, $first, $token);
                    break;
                case 1:
                    $body = str_repeat($token, mt_rand(1, 20000));
                    $hash = md5($body);
                    $response = $worker->request(parameters('/input', ['REQUEST_METHOD' => 'PUT']), $body, mt_rand(0, 1) * 4096);
                    check(explode('|', $response->body)[2], $hash, $token);
                    break;
                case 2:
                    $who = mt_rand(0, 9);
                    $cookie = isset($sessions[$who]) ? ['HTTP_COOKIE' => "PHPSESSID={$sessions[$who][0]}"] : [];
                    [$n, $id] = explode(' ', $worker->request(parameters('/session', $cookie))->body);
                    check([$n, $id], [(string) (($sessions[$who][1] ?? 0) + 1), $sessions[$who][0] ?? $id], $token);
                    $sessions[$who] = [$id, (int) $n];
                    break;
                case 3:
                    check($worker->request(parameters('/throw-hidden'))->status, 500, $token);
                    break;
                case 4:
                    check($worker->request(parameters('/headers'))->fields['x-one'], ['1', '2'], $token);
                    break;
                case 5:
                    $part = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"$token\"\r\n\r\n$token\r\n--b--\r\n";
                    $response = $worker->request(parameters('/dump', ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'multipart/form-data; boundary=b']), $part);
                    check($response->json()['files']['f']['name'], $token, $token);
                    break;
                case 6:
                    check($worker->request(parameters('/nested'))->body, '<a[b]>', $token);
                    break;
                case 7:
                    if ($i % 10 === 0) {
                        check($worker->request(parameters('/exit'))->body, 'before said shutdown', $token);
                        $worker->end();
                        $worker = $boot();
                        $boots++;
                    }
                    break;
                case 8:
                    if ($i % 5 === 0) {
                        check(strlen($worker->request(parameters('/large'))->body), 1000000, $token);
                    }
                    break;
                default:
                    $response = $worker->request(parameters("/dump?q=$token", [
                        'REQUEST_METHOD' => 'POST',
                        'CONTENT_TYPE' => 'application/x-www-form-urlencoded',
                        'HTTP_COOKIE' => "c=$token",
                        'HTTP_X_TOKEN' => $token,
                    ]), "p=$token")->json();
                    check([$response['get'], $response['post'], $response['cookie'], $response['files']], [['q' => $token], ['p' => $token], ['c' => $token], []], $token);
                    check($response['server']['HTTP_X_TOKEN'], $token, $token);
            }
            if ($i === 2000) {
                $reference = $worker->memory;
            }
        }
        check($worker->request(parameters('/state'))->body, $first, 'state after all');
        check($worker->memory < $reference + 300000, true, "memory $reference, then {$worker->memory}");
        check($boots > 5, true, "$boots boots");
        check(count(scandir('/proc/' . $worker->hello['pid'] . '/fd')) < 40, true, 'open files');
        $worker->stop();
        check(glob($server->folder . '/php*') ?: [], [], 'temporary files');
    }],
    'a worker of the native API does not grow' => [['own'], static function (Server $server): void {
        $worker = $server->worker('native', realpath(APP . '/../../../examples/php/public/index.php'));
        $reference = 0;
        for ($i = 1; $i <= 3000; $i++) {
            $id = $i % 1000 + 1;
            has($worker->request(parameters("/users/$id"))->body, "<dd>$id</dd>", "user $id");
            if ($i === 1000) {
                $reference = $worker->memory;
            }
        }
        check($worker->memory < $reference + 50000, true, "memory $reference, then {$worker->memory}");
        $worker->stop();
    }],
];
