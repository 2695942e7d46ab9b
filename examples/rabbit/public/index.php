<?php

// An application as Laravel and the frameworks on Swoole have it: controllers by name, middlewares by name, Eloquent and Blade.
// The same file is the script of resident workers (`mode = "native"`) and the front controller under plain PHP-FPM.

declare(strict_types=1);

use App\Middleware\JsonOnly;
use App\Middleware\Language;
use App\Middleware\RequestId;
use Apus\App;
use Apus\Blade;
use Apus\Eloquent;
use Apus\Log;

if (!class_exists(App::class, false)) {
    require getenv('APUS_PHP') ?: __DIR__ . '/../../../php/apus.php';
}
spl_autoload_register(static function (string $class): void {
    $file = __DIR__ . '/../app/' . strtr(substr($class, 4), '\\', '/') . '.php';
    if (str_starts_with($class, 'App\\') && is_file($file)) {
        require $file;
    }
});

Eloquent::connect(require __DIR__ . '/../database.php');
Blade::views(__DIR__ . '/../views', __DIR__ . '/../storage/views');

$app = new App();
$app->middleware('identify', RequestId::class);
$app->middleware('language', Language::class);
$app->middleware('json', JsonOnly::class);

$app->group('', ['identify', 'language'], static function ($routes): void {
    $routes->get('/', 'IndexController@index');
    $routes->get('/users/{id:int}', 'IndexController@index');
    $routes->get('/hello', 'IndexController@hello');
    $routes->post('/users/{id:int}/greetings', 'GreetingController@add', ['json']);
}, namespace: 'App\Controller');

$app->task('greet', static fn (array $greeting) => Log::info("a greeting for user {$greeting['user']}: {$greeting['text']}"));

$app->run();
