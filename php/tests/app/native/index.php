<?php

// An application with the native API for the tests.

declare(strict_types=1);

use Apus\App;
use Apus\Cache;
use Apus\Channel;
use Apus\Db;
use Apus\HttpException;
use Apus\Log;
use Apus\Request;
use Apus\Response;
use Apus\Socket;
use Apus\Task;
use Apus\View;

final class Controller
{
    private int $calls = 0;

    public function show(Request $request, int $id, string $more = 'none'): string
    {
        return ++$this->calls . " $id $more " . $request->method();
    }

    public static function plain(): string
    {
        return 'static';
    }
}

Db::configure(getenv('TEST_DSN') ?: 'sqlite::memory:', getenv('TEST_USER') ?: null, getenv('TEST_PASSWORD') ?: null);

$app = new App();
$app->views(__DIR__ . '/views');
$trail = static fn (string $name): Closure => static function (Request $request, callable $next) use ($name): Response {
    $request->attributes['trail'][] = $name;
    return $next($request)->header('X-Trail', $name);
};
$app->middleware('a', $trail('a'))->middleware('b', $trail('b'));
$app->use(static fn (Request $request, callable $next): Response => $next($request)->header('X-Always', '1'));
$app->middleware('closed', static fn (): Response => Response::text('closed', 403));

$app->get('/', static fn (): string => '<p>home</p>');
$app->get('/json', static fn (): array => ['a' => [1, 2.0, 'ü/']]);
$app->get('/nothing', static fn () => null);
$app->get('/users/{id:int}', [Controller::class, 'show']);
$app->get('/users/{id:int}/{more}', [Controller::class, 'show']);
$app->get('/static', [Controller::class, 'plain']);
$app->get('/float/{x:float}', static fn (float $x): string => var_export($x, true));
$app->get('/slug/{s:slug}', static fn (string $s): string => "slug $s");
$app->get('/uuid/{u:uuid}', static fn (string $u): string => "uuid $u");
$app->get('/files/{rest:path}', static fn (string $rest): string => "rest $rest");
$app->put('/users/{id:int}', static fn (int $id): string => "put $id");
$app->on(['POST', 'PATCH'], '/users/{id:int}', static fn (Request $request, int $id): array => [$request->method(), $id, $request->input('name')]);
$app->group('/admin', ['a'], static function ($admin) use ($trail): void {
    $admin->get('/one', static fn (Request $request): array => $request->attribute('trail'));
    $admin->group('/deep', ['b', $trail('c')], static function ($deep): void {
        $deep->get('/two', static fn (Request $request): array => $request->attribute('trail'));
    });
    $admin->group('/closed', ['closed'], static function ($closed): void {
        $closed->get('/x', static fn (): string => 'open');
    });
});
$app->get('/view', static fn (Request $request): View => new View('page', ['title' => '<T>', 'text' => "a\"b'c&"]));
$app->get('/view-throws', static fn (): View => new View('throws'));
$app->get('/text', static fn (): Response => Response::text('text', 201)->cookie('c', 'ä b', maxAge: 60, secure: true)->cookie('d', 'e'));
$app->get('/redirect', static fn (): Response => Response::redirect('/there', 303));
$app->get('/file', static fn (): Response => Response::file('/srv/x.pdf', 'application/pdf', 'Ä"x.pdf'));
$app->get('/stream', static fn (): Response => Response::stream(static function (): iterable {
    foreach (['one', 'two', 'three'] as $piece) {
        yield $piece;
    }
}, 'text/plain'));
$app->get('/events', static fn (): Response => Response::events('news', 'user:1'));
$app->get('/split', static fn (): Response => Response::text('x')->header('X-A', "a\r\nX-B: c"));
$app->get('/throw', static fn () => throw new RuntimeException('secret reason'));
$app->get('/teapot', static fn () => throw new HttpException(418, 'I am <b>', ['X-Pot' => '1']));
$app->get('/handled', static fn () => throw new DomainException('known'));
$app->error(DomainException::class, static fn (Throwable $error, Request $request): Response => Response::text("handled {$error->getMessage()} {$request->path()}", 422));
$app->post('/json', static fn (Request $request): array => ['got' => $request->json(), 'a' => $request->input('a')]);
$app->post('/upload', static function (Request $request): array {
    $file = $request->file('f');
    $to = sys_get_temp_dir() . '/apus-native-' . getmypid();
    $file->moveTo($to);
    $content = file_get_contents($to);
    unlink($to);
    return [$file->name, $file->type, $file->size, $content, $request->file('none'), $request->input('t')];
});
$app->get('/who', static fn (Request $request): array => [$request->ip(), $request->isSecure(), $request->header('User-Agent'), $request->cookie('c'),
    $request->query('q', 'none'), $request->path(), $request->target(), $request->server('SERVER_NAME')]);
$app->get('/session', static function (): string {
    session_start();
    return (string) ($_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1);
});

$app->get('/db', static function (): array {
    Db::get()->run('CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, name VARCHAR(20))');
    Db::get()->run('DELETE FROM t');
    $rows = Db::get()->run("INSERT INTO t (id, name) VALUES (1, 'one'), (2, 'two')");
    return [$rows, Db::get()->one('SELECT name FROM t WHERE id = ?', [2]), Db::get()->one('SELECT name FROM t WHERE id = :id', ['id' => 3]),
        count(Db::get()->all('SELECT * FROM t')), (int) Db::get()->value('SELECT COUNT(*) FROM t')];
});
$app->get('/db/count', static fn (): int => (int) Db::get()->value('SELECT COUNT(*) FROM t'));
$app->get('/db/open', static function (): string {
    Db::get()->pdo()->beginTransaction();
    Db::get()->run('DELETE FROM t');
    return 'open';
});
$app->get('/db/transaction', static function (Request $request): string {
    return Db::get()->transaction(static function (Db $db) use ($request): string {
        $db->run("INSERT INTO t (id, name) VALUES (?, 'x')", [$request->query('id')]);
        return $request->query('fail') === null ? 'done' : throw new DomainException('failed');
    });
});
$app->get('/db/id', static fn (): int => (int) Db::get()->value('SELECT CONNECTION_ID()'));
$app->get('/db/lose', static function (Request $request): array {
    $db = Db::get();
    $lose = static function () use ($db): void {
        $id = (int) $db->value('SELECT CONNECTION_ID()');
        $other = new PDO((string) getenv('TEST_DSN'), (string) getenv('TEST_USER'), (string) getenv('TEST_PASSWORD'));
        $other->exec("KILL $id");
        while ($other->query("SELECT COUNT(*) FROM information_schema.processlist WHERE id = $id")->fetchColumn() > 0) {
            usleep(1000);
        }
    };
    if ($request->query('in') === 'transaction') {
        return [$db->transaction(static function () use ($db, $lose): void {
            $lose();
            $db->run('DELETE FROM t');
        })];
    }
    $lose();
    return [(int) $db->value('SELECT COUNT(*) FROM t')];
});

$app->get('/cache', static fn (Request $request): mixed => Cache::remember('key', (float) $request->query('ttl', '60'), static fn (): array => ['made' => hrtime(true)]));
$app->get('/cache/delete', static function (): string {
    Cache::delete('key');
    return Cache::get('key', 'gone');
});
$app->get('/cache/many', static function (): int {
    for ($i = 0; $i < 30000; $i++) {
        Cache::set("k$i", $i, 60);
    }
    return Cache::get('k29999');
});
$app->get('/log', static function (): string {
    Log::info('said', ['a' => 1, 'b' => "ü\n"]);
    Log::error('wrong');
    return 'logged';
});

$app->task('mail', static function (mixed $payload): void {
    Log::info('mail', ['payload' => $payload]);
});
$app->task('fails', static fn () => throw new RuntimeException('task failed'));
$app->get('/task', static function (): string {
    Task::queue('mail', ['to' => 'x'], 1.5);
    return 'queued';
});
$app->get('/after', static function (): string {
    Task::after(static fn () => Log::info('after'));
    Task::after(static fn () => throw new RuntimeException('after failed'));
    return 'answered';
});
$app->every(0.25, 'tick', static fn () => Log::info('tick'));

$app->socket(
    '/chat/{room:slug}',
    open: static function (Request $request, Socket $socket, string $room): ?Response {
        if ($request->query('token') !== 'ok') {
            return Response::text('no', 401);
        }
        $socket->join("chat:$room");
        $socket->keep(['name' => $request->query('name')]);
        $socket->send('welcome');
        return null;
    },
    message: static function (Socket $socket, string $message, string $room): void {
        if ($message === 'bye') {
            $socket->leave("chat:$room");
            $socket->close(4000, 'bye');
            return;
        }
        Channel::publish("chat:$room", $socket->kept()['name'] . ": $message");
        Channel::event('news', "line 1\nline 2", 'chat', '7');
        Socket::of('other')->send("\x00\xff", true);
    },
    close: static fn (Socket $socket, int $code, string $room) => Channel::publish("chat:$room", "left $code"),
);

$app->run();
