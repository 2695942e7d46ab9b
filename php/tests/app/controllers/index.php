<?php

// An application with controllers, services and middlewares that are named on routes. TEST_FAULT adds a mistake.

declare(strict_types=1);

use App\Basket;
use App\Clock;
use App\EnglishGreeter;
use App\Greeter;
use App\Library;
use App\One;
use App\Shelf;
use App\Stamp;
use Apus\App;
use Apus\Container;
use Apus\Log;
use Apus\Request;
use Apus\Response;

require __DIR__ . '/classes.php';

$app = new App();
$app->views(__DIR__ . '/../native/views');
$trail = static fn (string $name): Closure => static fn (Request $request, callable $next): Response =>
    $next($request)->header('X-Trail', $name);
$app->middleware('a', $trail('a'))->middleware('b', $trail('b'))->middleware('stamp', Stamp::class);
$app->service(Clock::class);
$app->service(Greeter::class, static fn (Container $container): Greeter => new EnglishGreeter('Hello'));
$app->service(Shelf::class);

$app->group('/home', ['a'], static function ($routes): void {
    $routes->get('/', 'IndexController@index', ['b']);
    $routes->get('/bare', 'IndexController@index');
    $routes->post('/', 'IndexController@missing');
    $routes->get('/template', 'IndexController@template');
    $routes->get('/silent', 'IndexController@silent');
    $routes->get('/services/{name}', 'IndexController@services', ['stamp', Stamp::class]);
    $routes->group('/deep', [], static function ($deep): void {
        $deep->get('/{id:int}', 'PlainController@show');
    }, namespace: 'Deep');
    $routes->group('/absolute', [], static function ($absolute): void {
        $absolute->get('/{id:int}', 'PlainController@show');
    }, namespace: '\App\Home\Deep');
}, namespace: 'App\Home');
$app->get('/qualified', 'App\Home\IndexController@index');
$app->get('/optional', static fn (?Basket $basket = null, ?Clock $clock = null): array => [$basket === null, $clock?->number]);
$app->get('/shelf', static fn (): mixed => App::$current?->container->get(Shelf::class));
$app->task('clock', static fn () => Log::info('clock ' . App::$current?->container->get(Clock::class)->number));
$app->task('request', static fn () => App::$current?->container->get(Basket::class));
$app->socket('/socket', open: static fn (Request $request) => null, message: static fn () => null);

$app->library(new Library());
$app->get('/library/{value:int}', static function (int $value): int {
    $before = Library::$value;
    Library::$value = $value;
    return $before;
});

match (getenv('TEST_FAULT') ?: '') {
    '' => null,
    'class' => $app->get('/fault', 'Nobody@index'),
    'method' => $app->get('/fault', 'App\Home\IndexController@nothing'),
    'middleware' => $app->get('/fault', static fn (): string => '', ['unknown']),
    'everywhere' => $app->use('nowhere'),
    'parameter' => $app->get('/fault/{id:int}', static fn (int $number): string => ''),
    'service' => $app->get('/fault', static fn (Countable $counter): string => ''),
    'model' => $app->get('/fault/{clock}', static fn (Clock $clock): string => ''),
    'circle' => $app->get('/fault', static fn (One $one): string => ''),
    'handle' => $app->get('/fault', static fn (): string => '', [Clock::class]),
};
$app->run();
