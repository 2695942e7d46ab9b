<?php

/** Eloquent and Blade: Debian's packages of Illuminate in workers that stay. */

declare(strict_types=1);

namespace Apus\Tests;

define(__NAMESPACE__ . '\ILLUMINATE', APP . '/illuminate/index.php');

/** @param array<string, string> $connection */
function illuminate(Server $server, array $connection): Worker
{
    $compiled = "{$server->folder}/compiled-" . bin2hex(random_bytes(4));
    $worker = $server->worker('native', ILLUMINATE, ['TEST_CONNECTION' => (string) json_encode($connection), 'TEST_COMPILED' => $compiled]);
    check($worker->request(parameters('/make'))->body, '3', 'the table');
    return $worker;
}

function sqlite(Server $server): Worker
{
    $file = "{$server->folder}/" . bin2hex(random_bytes(4)) . '.sqlite';
    touch($file);
    return illuminate($server, ['driver' => 'sqlite', 'database' => $file]);
}

function mariadb(Server $server): Worker
{
    return illuminate($server, MariaDb::get()->connection());
}

function postgres(Server $server): Worker
{
    return illuminate($server, Postgres::get()->connection());
}

/** A request that leaves a transaction open, and what the next ones see. */
function leavesTransactions(Worker $worker): void
{
    foreach (['/open' => '1', '/open?savepoint' => '2', '/open-pdo' => 'open', '/open-ended' => 'ended'] as $target => $body) {
        check($worker->request(parameters($target))->body, $body, $target);
        check($worker->request(parameters('/level'))->json(), [0, false], "the next after $target");
        check($worker->request(parameters('/count'))->body, '3', "$target was rolled back");
    }
    check($worker->request(parameters('/transaction'))->body, '4', 'a transaction that is committed');
    check($worker->request(parameters('/count'))->body, '4', 'it stays');
}

return [
    'Eloquent: models and pages' => static function (Server $server): void {
        $worker = sqlite($server);
        check($worker->request(parameters('/birds/2'))->json(), ['id' => 2, 'name' => 'martin'], 'find');
        check($worker->request(parameters('/birds/9'))->status, 404, 'none');
        foreach (['/birds?page=2' => [2, 1], '/birds' => [1, 2], '/birds?page=-1' => [1, 2], '/birds?page=x' => [1, 2]] as $target => [$page, $rows]) {
            $found = $worker->request(parameters($target))->json();
            check([$found['current_page'], count($found['data'])], [$page, $rows], $target);
            check($found['path'], '/birds', 'path');
        }
        $worker->stop();
    },
    'Eloquent: an open transaction of SQLite is rolled back and logged' => static function (Server $server): void {
        $worker = sqlite($server);
        $worker->request(parameters('/open'));
        has($worker->logs[0]['text'] ?? '', 'open transaction of database default (rolled back)', 'log');
        leavesTransactions($worker);
        $worker->stop();
    },
    'Eloquent: an open transaction of MariaDB is rolled back, also after exit()' => static function (Server $server): void {
        $worker = mariadb($server);
        $id = $worker->request(parameters('/id'))->body;
        leavesTransactions($worker);
        check($worker->request(parameters('/make'))->body, '3', 'new rows');
        $other = $server->worker('native', ILLUMINATE, ['TEST_CONNECTION' => (string) json_encode(MariaDb::get()->connection()), 'TEST_COMPILED' => $server->folder . '/other']);
        check($worker->request(parameters('/open-exit'))->body, 'left', 'exit()');
        $worker->end();
        check($other->request(parameters('/count'))->body, '3', 'rolled back');
        check($other->request(parameters('/id'))->body !== $id, true, 'each worker has its connection');
        $id = $other->request(parameters('/id'))->body;
        $other->request(parameters('/open'));
        check($other->request(parameters('/id'))->body, $id, 'the connection stays open after a transaction');
        $other->stop();
    },
    'Eloquent: a lost connection is replaced, and no statement runs twice' => static function (Server $server): void {
        $worker = mariadb($server);
        foreach (['read' => '3', 'begin' => '3', 'write' => '4'] as $then => $body) {
            $response = $worker->request(parameters("/kill?then=$then"));
            check([$response->status, $response->body], [200, $body], "$then on a connection that was used just now");
        }
        check($worker->request(parameters('/kill?then=write&idle=1.1'))->body, '5', 'one that was idle');
        has($worker->logs[0]['text'] ?? '', 'was lost and is opened again', 'log');
        check(count($worker->logs), 1, 'log lines');
        check($worker->request(parameters('/count'))->body, '5', 'rows');
        check($worker->request(parameters('/kill'))->body, '0', 'killed at the end of a request');
        check($worker->request(parameters('/count'))->body, '5', 'the next request');
        check($worker->request(parameters('/kill-open'))->status, 500, 'lost within a transaction');
        check($worker->request(parameters('/level'))->json(), [0, false], 'the next request');
        check($worker->request(parameters('/count'))->body, '5', 'nothing was done');
        $worker->stop();
    },
    'Eloquent: a lost connection to PostgreSQL is replaced, and no statement runs twice' => static function (Server $server): void {
        $worker = postgres($server);
        foreach (['read', 'begin'] as $then) {
            $response = $worker->request(parameters("/kill?then=$then"));
            check([$response->status, $response->body], [200, '3'], "$then on a connection that was used just now");
        }
        check($worker->request(parameters('/kill?then=write'))->status, 500, 'a statement that may have taken effect');
        check($worker->request(parameters('/count'))->body, '3', 'the next request');
        check($worker->request(parameters('/kill?then=write&idle=1.1'))->body, '4', 'a write on one that was idle');
        has($worker->logs[0]['text'] ?? '', 'was lost and is opened again', 'log');
        check($worker->request(parameters('/kill-open'))->status, 500, 'lost within a transaction');
        check($worker->request(parameters('/level'))->json(), [0, false], 'the next request');
        check($worker->request(parameters('/count'))->body, '4', 'nothing was done');
        $worker->stop();
    },
    'Eloquent: an open transaction of PostgreSQL is rolled back' => static function (Server $server): void {
        $worker = postgres($server);
        leavesTransactions($worker);
        $worker->stop();
    },
    'Eloquent: a connection is checked if it was idle' => [['fpm'], static function (Server $server): void {
        $worker = mariadb($server);
        $selects = (int) $worker->request(parameters('/selects'))->body;
        check((int) $worker->request(parameters('/selects'))->body, $selects, 'in use');
        usleep(1_100_000);
        check((int) $worker->request(parameters('/selects'))->body, $selects + 1, 'idle for more than a second');
        check((int) $worker->request(parameters('/selects'))->body, $selects + 1, 'in use again');
        $worker->stop();
    }],
    'Eloquent: query log, listeners and settings of a request are gone' => static function (Server $server): void {
        $worker = sqlite($server);
        for ($i = 0; $i < 3; $i++) {
            check($worker->request(parameters('/log'))->json(), [false, 0, 1], 'query log');
            check($worker->request(parameters('/listen'))->body, '1', 'listeners');
            check($worker->request(parameters('/unguard'))->json(), [false, false], 'settings');
            check($worker->request(parameters('/default'))->body, 'default', 'the default connection');
        }
        $worker->stop();
    },
    'Blade: views, layouts and components' => static function (Server $server): void {
        $worker = sqlite($server);
        $text = urlencode('<b>&');
        for ($i = 0; $i < 2; $i++) {
            $body = $worker->request(parameters("/view/page?text=$text"))->body;
            check($body, "<title>Swifts</title>\n<p>&lt;b&gt;&amp; <b>&</p>\n<i>script</i>\n", 'page');
            check(trim($worker->request(parameters("/view/component?text=$text"))->body), '<b class="info">&lt;b&gt;&amp;</b>', 'component');
        }
        $response = $worker->request(parameters('/make-view'));
        check([$response->body, $response->field('content-type')], ["Swifts none made\n", 'text/html; charset=utf-8'], 'a view as result');
        $worker->stop();
    },
    'Blade: nothing of a request is left in the views of the next' => static function (Server $server): void {
        $worker = sqlite($server);
        for ($i = 0; $i < 2; $i++) {
            check($worker->request(parameters('/share'))->body, "mine of a request composed\n", 'values and composers');
            check($worker->request(parameters('/view/plain?text=x'))->body, "Swifts none x\n", 'the next');
            check($worker->request(parameters('/view/note'))->status, 500, 'a folder');
            has($worker->logs[0]['text'], 'View [note] not found', 'log');
            check($worker->request(parameters('/half'))->body, 'half', 'a section and a stack');
            check($worker->request(parameters('/view/bare'))->body, "<title>Swifts</title>\n", 'the next');
        }
        $worker->stop();
    },
    'Blade: exceptions in views' => static function (Server $server): void {
        $worker = sqlite($server);
        for ($i = 0; $i < 2; $i++) {
            check($worker->request(parameters('/view/fails'))->body, 'handled in a view', 'by its class');
            check($worker->request(parameters('/view/bare'))->body, "<title>Swifts</title>\n", 'the next');
            $response = $worker->request(parameters('/view/refuses'));
            check($response->status, 410, 'HttpException');
            has($response->body, 'It is gone.', 'body');
            check($worker->request(parameters('/unfinished'))->body, '0', 'views that the engine did not finish');
        }
        $worker->stop();
    },
    'Blade: a changed view is compiled again, and other users cannot read or replace compiled ones' => static function (Server $server): void {
        $views = "{$server->folder}/views-" . bin2hex(random_bytes(4));
        mkdir($views);
        $script = "$views/index.php";
        file_put_contents($script, '<?php Apus\Blade::views(__DIR__, __DIR__ . "/compiled"); $app = new Apus\App();
            $app->get("/", static fn (): string => Apus\Blade::view("v")); $app->run();');
        file_put_contents("$views/v.blade.php", 'one');
        touch("$views/v.blade.php", time() - 10);
        $worker = $server->worker('native', $script);
        check($worker->request(parameters('/'))->body, 'one', 'the first');
        check(fileperms("$views/compiled") & 0o777, 0o700, 'the folder');
        file_put_contents("$views/v.blade.php", 'two');
        touch("$views/v.blade.php", time() + 10);
        check($worker->request(parameters('/'))->body, 'two', 'changed');
        $worker->stop();
    },
];
