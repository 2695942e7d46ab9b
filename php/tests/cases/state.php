<?php

/** No state of a request is left for the next one. */

declare(strict_types=1);

namespace Apus\Tests;

return [
    'state of PHP that a request changed is restored' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $new = $worker->request(parameters('/state'))->body;
        for ($i = 0; $i < 3; $i++) {
            $spoilt = $worker->request(parameters('/spoil?x=1', ['HTTP_AUTHORIZATION' => 'Basic ' . base64_encode('a:b'), 'HTTP_COOKIE' => 'x=y']));
            check($spoilt->status, 418, 'status');
            check($spoilt->body, 'oneTWO', 'body');
            check($worker->request(parameters('/state'))->body, $new, 'state after it');
        }
        check($worker->logs, [], 'logs');
        $worker->stop();
    },
    'state of PHP is restored in classic mode' => static function (Server $server): void {
        $worker = $server->worker('classic', APP . '/index.php', ['APUS_KEEP' => '1']);
        $new = $worker->request(parameters('/state'))->json();
        $worker->request(parameters('/spoil', ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'application/x-www-form-urlencoded']), 'a=b');
        $worker->request(parameters('/global?n=1'));
        check($worker->request(parameters('/state'))->json(), $new, 'state after it');
        $worker->stop();
    },
    'each state of the table in docs/resident-php.md is restored, replaced or kept as it says' => static function (Server $server): void {
        $ask = static fn (Worker $worker, string $table, string $name, string $do): string => $worker->request(parameters(
            '/?' . http_build_query(['table' => $table, 'name' => $name, 'do' => $do])
        ))->body;
        $worker = $server->worker('worker', APP . '/kept.php');
        $rows = json_decode($worker->request(parameters('/'))->body, true, 512, JSON_THROW_ON_ERROR);
        $wrong = [];
        foreach ($rows['restored'] as $name) {
            $new = $ask($worker, 'restored', $name, 'see');
            $changed = $ask($worker, 'restored', $name, 'change');
            $after = $ask($worker, 'restored', $name, 'see');
            if ($changed === $new || $after !== $new || $worker->logs !== [] || $worker->bye !== null) {
                $wrong[$name] = [$new, $changed, $after, $worker->logs];
            }
        }
        check($wrong, [], 'new, changed, and after it');
        foreach ($rows['logged'] as $name) {
            $what = json_decode($ask($worker, 'logged', $name, 'see'));
            $ask($worker, 'logged', $name, 'change');
            check(array_column($worker->logs, 'text'), ["left behind by a request: $what"], $name);
        }
        foreach ($rows['stays'] as $name) {
            $new = $ask($worker, 'stays', $name, 'see');
            $changed = $ask($worker, 'stays', $name, 'change');
            check([$changed !== $new, $ask($worker, 'stays', $name, 'see')], [true, $changed], "$name, after a request that changed it");
        }
        $worker->stop();
        foreach ($rows['replaced'] as $name) {
            $worker = $server->worker('worker', APP . '/kept.php');
            $ask($worker, 'replaced', $name, 'see');
            check($worker->bye, null, 'BYE');
            $ask($worker, 'replaced', $name, 'change');
            check($worker->bye, 'leak', "$name, BYE");
            has($worker->logs[0]['text'] ?? '', 'the worker is replaced', "$name, log");
            $worker->end();
        }
    },
    'stream wrappers and contexts of the application stay, and a request that changes them ends the worker' => static function (Server $server): void {
        $all = '<x>{"own":{"of":"all"}}</x>';
        $seen = "$all$all{\"own\":{\"of\":\"xml\"}} ";
        $worker = $server->worker('worker', APP . '/kept-boot.php');
        foreach (['/', '/same', '/other', '/wrapper', '/xml', '/'] as $target) {
            $worker->request(parameters($target));
            check($worker->request(parameters('/'))->body, $seen . '0', "after $target");
            $form = parameters('/', ['REQUEST_METHOD' => 'PUT', 'CONTENT_TYPE' => 'text/plain', 'CONTENT_LENGTH' => '4']);
            check($worker->request($form, 'body')->body, $seen . '4', "with a body, after $target");
            check([$worker->logs, $worker->bye], [[], null], "$target, log and BYE");
        }
        $worker->stop();
        foreach (['/remove', '/replace'] as $target) {
            $worker = $server->worker('worker', APP . '/kept-boot.php');
            $worker->request(parameters($target));
            check($worker->bye, 'leak', "$target, BYE");
            has($worker->logs[0]['text'] ?? '', 'the worker is replaced', "$target, log");
            $worker->end();
        }
    },
    'global variables that a request adds are logged once' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        check($worker->request(parameters('/global?n=a'))->body, 'left', 'body');
        has($worker->logs[0]['text'] ?? '', '$left_a', 'log');
        check($worker->logs[0]['level'], 4, 'level');
        $worker->request(parameters('/hello'));
        check($worker->logs, [], 'logs');
        $worker->stop();
    },
    'leaks end the worker with "refuse"' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php', ['APUS_LEAKS' => 'refuse']);
        $worker->request(parameters('/hello'));
        check($worker->bye, null, 'BYE');
        check($worker->request(parameters('/global?n=a'))->body, 'left', 'body');
        check($worker->bye, 'leak', 'BYE');
        $worker->end();
    },
    'leaks are ignored with "ignore"' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php', ['APUS_LEAKS' => 'ignore']);
        $worker->request(parameters('/global?n=a'));
        check($worker->logs, [], 'logs');
        $worker->stop();
    },
    'random numbers do not depend on the seed of an earlier request' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $worker->request(parameters('/random'));
        mt_srand(1);
        $predicted = (string) mt_rand();
        $one = $worker->request(parameters('/random'))->body;
        $two = $worker->request(parameters('/random'))->body;
        check($one !== $predicted && $two !== $predicted && $one !== $two, true, "$one $two");
        // Enough requests without random numbers, so that the runtime computes the next ones in advance.
        $seen = [$predicted => true];
        foreach ([80, 0, 80, 600, 0, 1] as $between) {
            for ($i = 0; $i < $between; $i++) {
                $worker->request(parameters('/state'));
            }
            $number = $worker->request(parameters('/random'))->body;
            check(isset($seen[$number]), false, "$number after $between requests without");
            $seen[$number] = true;
        }
        $worker->stop();
    },
    'a session handler that is set once, with or without a session in that request' => static function (Server $server): void {
        foreach ([[], ['TEST_LATE' => '1']] as $when) {
            $worker = $server->worker('worker', APP . '/handler.php', $when);
            check($worker->request(parameters('/'))->body, '0', 'a request without a session');
            [$n, $id, $opened] = explode(' ', $worker->request(parameters('/session'))->body);
            check([$n, $opened], ['1', '1'], 'a new session');
            for ($i = 2; $i < 5; $i++) {
                $response = $worker->request(parameters('/session', ['HTTP_COOKIE' => "PHPSESSID=$id"]));
                check([$response->body, $response->field('set-cookie')], ["$i $id $i", null], 'the handler is the same');
                check($worker->request(parameters('/'))->body, (string) $i, 'a request without a session');
            }
            [$n, $other] = explode(' ', $worker->request(parameters('/session'))->body);
            check([$n, $other !== $id], ['1', true], 'another client');
            $worker->stop();
        }
    },
    'session settings of an object that stays in memory apply to later requests' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        [$n, $id] = explode(' ', $worker->request(parameters('/session-once'))->body);
        for ($i = 2; $i < 5; $i++) {
            $response = $worker->request(parameters('/session-once', ['HTTP_COOKIE' => "ONCE=$id"]));
            check($response->body, "$i $id", 'session');
            check($response->field('cache-control'), null, 'cache limiter');
        }
        $worker->stop();
    },
    'a session handler of the application' => static function (Server $server): void {
        $id = str_repeat('a', 26);
        $known = ['HTTP_COOKIE' => "PHPSESSID=$id"];
        @unlink("$server->folder/sessions/sess_$id");
        $worker = $server->worker('worker', APP . '/worker.php', ['APUS_LEAKS' => 'ignore']);
        check($worker->request(parameters('/session-own', $known))->body, '42', 'a handler of the application');
        for ($i = 0; $i < 3; $i++) {
            $response = $worker->request(parameters('/session', $known));
            check([$response->body, $response->field('set-cookie')], ["42 $id", null], 'it stays, as the object that has set it');
            $response = $worker->request(parameters('/session'));
            [$n, $new] = explode(' ', $response->body);
            check([$n, $new !== $id], ['42', true], 'another client');
            has((string) $response->field('set-cookie'), "PHPSESSID=$new", 'cookie');
            check($worker->request(parameters('/session-open'))->json(), ['', false], 'a request without a session');
        }
        $worker->stop();
        $worker = $server->worker('classic', APP . '/index.php', ['APUS_KEEP' => '1']);
        check($worker->request(parameters('/session-own', $known))->body, '42', 'a handler of the application');
        check(explode(' ', $worker->request(parameters('/session', $known))->body)[0], '1', 'in classic mode it is gone');
        $worker->stop();
    },
    'sessions belong to their cookies' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        [$n, $alice] = explode(' ', $worker->request(parameters('/session'))->body);
        check($n, '1', 'a new session');
        check($worker->request(parameters('/session-open'))->json(), ['', false], 'a request without a session');
        $response = $worker->request(parameters('/session'));
        [$n, $bob] = explode(' ', $response->body);
        check($n, '1', 'another new session');
        check($alice !== $bob, true, 'ids');
        has($response->fields['set-cookie'][0], "PHPSESSID=$bob", 'cookie');
        foreach ([[$alice, '2'], [$bob, '2'], [$alice, '3'], [$alice, '4'], [$bob, '3']] as [$id, $n]) {
            $response = $worker->request(parameters('/session', ['HTTP_COOKIE' => "PHPSESSID=$id"]));
            check($response->body, "$n $id", 'session');
            check($response->field('set-cookie'), null, 'no new cookie');
            check($response->field('cache-control'), 'no-store, no-cache, must-revalidate', 'cache limiter');
        }
        $regenerated = $worker->request(parameters('/session-regenerate', ['HTTP_COOKIE' => "PHPSESSID=$alice"]))->body;
        check($worker->request(parameters('/session', ['HTTP_COOKIE' => "PHPSESSID=$regenerated"]))->body, "5 $regenerated", 'a new id');
        check($worker->request(parameters('/session-destroy', ['HTTP_COOKIE' => "PHPSESSID=$bob"]))->body, 'gone', 'destroyed');
        check(explode(' ', $worker->request(parameters('/session', ['HTTP_COOKIE' => "PHPSESSID=$bob"]))->body)[0], '1', 'a destroyed session begins anew');
        $other = $server->worker('worker', APP . '/worker.php');
        check($other->request(parameters('/session', ['HTTP_COOKIE' => "PHPSESSID=$regenerated"]))->body, "6 $regenerated", 'in another worker');
        check($worker->request(parameters('/session', ['HTTP_COOKIE' => "PHPSESSID=$regenerated"]))->body, "7 $regenerated", 'no lock is left');
        $other->stop();
        $worker->stop();
    },
];
