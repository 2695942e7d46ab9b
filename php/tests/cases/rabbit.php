<?php

/** examples/rabbit: controllers and middlewares by name, Eloquent and Blade, resident and under plain FastCGI. */

declare(strict_types=1);

namespace Apus\Tests;

/** A copy of the application, whose folder for compiled views is new, with users in the database. */
function rabbit(Server $server): string
{
    $folder = "{$server->folder}/rabbit-" . bin2hex(random_bytes(4));
    $example = realpath(APP . '/../../../examples/rabbit');
    exec('cp -r ' . escapeshellarg($example) . ' ' . escapeshellarg($folder) . " && rm -rf $folder/storage");
    $environment = '';
    foreach (MariaDb::get()->rabbit() + ['APUS_PHP' => RUNTIME] as $name => $value) {
        $environment .= "$name=" . escapeshellarg($value) . ' ';
    }
    exec("$environment php $folder/database.php 2>&1", $output, $status);
    check([$output, $status], [['1000 users'], 0], 'users');
    return "$folder/public/index.php";
}

/** @return array<string, string> */
function greeting(string $target, string $body, string $type = 'application/json'): array
{
    return parameters($target, ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => $type, 'CONTENT_LENGTH' => (string) strlen($body)]);
}

return [
    'two middlewares, one row, one view of 400 bytes, in both languages' => static function (Server $server): void {
        $worker = $server->worker('native', rabbit($server), MariaDb::get()->rabbit());
        $response = $worker->request(parameters('/', ['HTTP_X_REQUEST_ID' => 'of <me>']));
        check([$response->status, $response->field('x-request-id'), $response->field('vary')], [200, 'ofme', 'Accept-Language'], 'middlewares');
        has($response->body, '<title>Ada Lovelace</title>', 'row');
        check(strlen($response->body) >= 380 && strlen($response->body) <= 420, true, 'bytes: ' . strlen($response->body));
        has($worker->request(parameters('/users/3', ['HTTP_ACCEPT_LANGUAGE' => 'zh-CN']))->body, '欢迎回来', 'language');
        has($worker->request(parameters('/users/4'))->body, 'edsger4@example.org', 'another row');
        check($worker->request(parameters('/users/5000'))->status, 404, 'no row');
        check($worker->request(parameters('/hello'))->body, '<p>Hello, world!</p>', 'showMessage()');
        $worker->stop();
    },
    'a middleware of one route, the log and a task' => static function (Server $server): void {
        $worker = $server->worker('native', rabbit($server), MariaDb::get()->rabbit());
        $body = '{"text": "hello"}';
        check($worker->request(greeting('/users/2/greetings', $body, 'text/plain'), $body)->status, 415, 'no JSON');
        foreach (['{"text": ""}', '{"text": 5}', '5', '{"text": "' . str_repeat('x', 201) . '"}'] as $refused) {
            check($worker->request(greeting('/users/2/greetings', $refused), $refused)->status, 422, $refused);
        }
        $longest = '{"text": "' . str_repeat('x', 200) . '"}';
        check($worker->request(greeting('/users/2/greetings', $longest), $longest)->status, 202, '200 bytes');
        check($worker->request(greeting('/users/5000/greetings', $body), $body)->status, 404, 'nobody');
        $response = $worker->request(greeting('/users/2/greetings', $body), $body);
        check([$response->status, $response->json()], [202, ['user' => 'Alan Turing', 'queued' => true]], 'queued');
        has($worker->logs[0]['text'], 'a greeting is queued', 'log');
        check($worker->commands[0]['name'], 'greet', 'task');
        $worker->event(['kind' => 'task', 'name' => 'greet', 'id' => '1'], substr($worker->commands[0]['bytes'], 4));
        has(end($worker->logs)['text'], 'a greeting for user 2: hello', 'log of the task');
        $worker->stop();
    },
    // Where functions of PHP are disabled, Blade works in workers only.
    'the same code under plain FastCGI' => [['cgi', 'fpm'], static function (Server $server): void {
        $script = rabbit($server);
        $parameters = static fn (string $target): array =>
            ['SCRIPT_FILENAME' => $script, 'APUS_PHP' => RUNTIME, 'HTTP_X_REQUEST_ID' => 'same'] + MariaDb::get()->rabbit() + parameters($target);
        $worker = $server->worker('native', $script, MariaDb::get()->rabbit());
        foreach (['/' => 200, '/users/6' => 200, '/users/5000' => 404, '/hello' => 200, '/none' => 404] as $target => $expected) {
            [$status, $fields, $body] = $server->plain($parameters($target));
            $response = $worker->request(parameters($target, ['HTTP_X_REQUEST_ID' => 'same']));
            check([$status, $response->status, $response->body], [$expected, $expected, $body], $target);
            check($response->field('x-request-id'), $fields['x-request-id'][0] ?? null, 'X-Request-Id');
        }
        $worker->stop();
    }],
    'a worker does not grow' => [['own'], static function (Server $server): void {
        $worker = $server->worker('native', rabbit($server), MariaDb::get()->rabbit());
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
