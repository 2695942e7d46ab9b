<?php

// The example application: two middlewares, one query, one view. The same file is the front controller under plain
// PHP-FPM and the script of resident workers (`mode = "native"`).

declare(strict_types=1);

use Apus\App;
use Apus\Channel;
use Apus\Db;
use Apus\HttpException;
use Apus\Request;
use Apus\Response;
use Apus\Socket;
use Apus\View;

if (!class_exists(App::class, false)) {
    require getenv('APUS_PHP') ?: __DIR__ . '/../../../php/apus.php';
}
require_once __DIR__ . '/../database.php';

$app = new App();
$app->views(__DIR__ . '/../views');

$app->middleware('identify', static function (Request $request, callable $next): Response {
    $id = $request->header('X-Request-Id') ?? bin2hex(random_bytes(8));
    $request->attributes['id'] = $id;
    return $next($request)->header('X-Request-Id', substr(preg_replace('/[^\w.-]/', '', $id), 0, 64));
});

$app->middleware('language', static function (Request $request, callable $next): Response {
    $request->attributes['language'] = str_starts_with((string) $request->header('Accept-Language'), 'zh') ? 'zh' : 'en';
    return $next($request)->header('Vary', 'Accept-Language');
});

$app->group('', ['identify', 'language'], static function ($routes): void {
    $routes->get('/users/{id:int}', static function (Request $request, int $id): View {
        $user = Db::get()->one('SELECT id, name, email, joined FROM users WHERE id = ?', [$id]);
        if ($user === null) {
            throw new HttpException(404, 'There is no such user.');
        }
        return new View('user', ['user' => $user, 'language' => $request->attribute('language')]);
    });
});

$app->get('/hello', static fn (): Response => Response::text('Hello, world!'));

// What needs sockets that live in Apus works in resident workers only.
$app->socket(
    '/rooms/{room:slug}',
    open: static fn (Request $request, Socket $socket, string $room) => $socket->join($room),
    message: static fn (Socket $socket, string $message, string $room) => Channel::publish($room, $message),
);
$app->get('/rooms/{room:slug}/events', static fn (string $room): Response => Response::events($room));

$app->run();
