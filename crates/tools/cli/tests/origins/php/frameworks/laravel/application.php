<?php
// A small Laravel application: sessions, encrypted cookies, tokens against forged requests, validation, uploads, JSON, accounts, a queue.
// This file contains everything that a project has in separate files.
use Illuminate\Contracts\Http\Kernel as HttpKernel;
use Illuminate\Http\Request;

require '/usr/share/php/Illuminate/autoload.php';
require_once __DIR__ . '/accounts.php';

if (!class_exists(Kernel::class, false)) {
    class Kernel extends Illuminate\Foundation\Http\Kernel
    {
        // The configuration is set below instead of in files.
        protected $bootstrappers = [
            Illuminate\Foundation\Bootstrap\HandleExceptions::class,
            Illuminate\Foundation\Bootstrap\RegisterFacades::class,
            Illuminate\Foundation\Bootstrap\RegisterProviders::class,
            Illuminate\Foundation\Bootstrap\BootProviders::class,
        ];
        protected $middlewareGroups = ['web' => [
            Illuminate\Cookie\Middleware\EncryptCookies::class,
            Illuminate\Cookie\Middleware\AddQueuedCookiesToResponse::class,
            Illuminate\Session\Middleware\StartSession::class,
            Illuminate\Foundation\Http\Middleware\VerifyCsrfToken::class,
            Illuminate\Routing\Middleware\SubstituteBindings::class,
        ]];
    }

    class ConsoleKernel extends Illuminate\Foundation\Console\Kernel
    {
        protected $bootstrappers = [
            Illuminate\Foundation\Bootstrap\HandleExceptions::class,
            Illuminate\Foundation\Bootstrap\RegisterFacades::class,
            Illuminate\Foundation\Bootstrap\SetRequestForConsole::class,
            Illuminate\Foundation\Bootstrap\RegisterProviders::class,
            Illuminate\Foundation\Bootstrap\BootProviders::class,
        ];
    }

    function application(string $base): Illuminate\Foundation\Application
    {
        $app = new Illuminate\Foundation\Application($base);
        $app->singleton(HttpKernel::class, Kernel::class);
        $app->singleton(Illuminate\Contracts\Console\Kernel::class, ConsoleKernel::class);
        $app->singleton(Illuminate\Contracts\Debug\ExceptionHandler::class, Illuminate\Foundation\Exceptions\Handler::class);
        $app->instance('config', new Illuminate\Config\Repository([
            'app' => [
                'key' => 'base64:' . base64_encode(hash('sha256', 'a test', true)), 'cipher' => 'AES-256-CBC', 'env' => 'production',
                'debug' => false, 'url' => 'http://app.test', 'timezone' => 'UTC', 'locale' => 'en', 'aliases' => [],
                'providers' => [
                    Illuminate\Auth\AuthServiceProvider::class,
                    Illuminate\Bus\BusServiceProvider::class,
                    Illuminate\Cache\CacheServiceProvider::class,
                    Illuminate\Cookie\CookieServiceProvider::class,
                    Illuminate\Database\DatabaseServiceProvider::class,
                    Illuminate\Encryption\EncryptionServiceProvider::class,
                    Illuminate\Filesystem\FilesystemServiceProvider::class,
                    Illuminate\Hashing\HashServiceProvider::class,
                    Illuminate\Queue\QueueServiceProvider::class,
                    Illuminate\Session\SessionServiceProvider::class,
                    Illuminate\Translation\TranslationServiceProvider::class,
                    Illuminate\Validation\ValidationServiceProvider::class,
                    Illuminate\View\ViewServiceProvider::class,
                    Illuminate\Foundation\Providers\ConsoleSupportServiceProvider::class,
                    Illuminate\Foundation\Providers\FormRequestServiceProvider::class,
                    Illuminate\Foundation\Providers\FoundationServiceProvider::class,
                ],
            ],
            'auth' => [
                'defaults' => ['guard' => 'web'],
                'guards' => ['web' => ['driver' => 'session', 'provider' => 'users']],
                'providers' => ['users' => ['driver' => 'eloquent', 'model' => User::class]],
            ],
            'cache' => ['default' => 'file', 'prefix' => 'app', 'stores' => ['file' => ['driver' => 'file', 'path' => "$base/storage/cache"]]],
            'database' => [
                'default' => 'sqlite',
                'connections' => ['sqlite' => ['driver' => 'sqlite', 'database' => "$base/storage/database.sqlite", 'prefix' => '']],
            ],
            'hashing' => ['driver' => 'bcrypt', 'bcrypt' => ['rounds' => 4]],
            'queue' => [
                'default' => 'database',
                'connections' => ['database' => ['driver' => 'database', 'table' => 'jobs', 'queue' => 'default', 'retry_after' => 90]],
                'failed' => ['driver' => 'database-uuids', 'database' => 'sqlite', 'table' => 'failed_jobs'],
            ],
            'logging' => ['default' => 'errorlog', 'channels' => ['errorlog' => ['driver' => 'errorlog']]],
            'session' => [
                'driver' => 'file', 'files' => "$base/storage", 'lifetime' => 120, 'expire_on_close' => false, 'lottery' => [0, 100],
                'cookie' => 'laravel_session', 'path' => '/', 'domain' => null, 'secure' => null, 'http_only' => true, 'same_site' => 'lax',
                'encrypt' => false, 'connection' => null,
            ],
            'view' => ['paths' => ["$base/views"], 'compiled' => "$base/storage"],
        ]));
        $app->detectEnvironment(fn () => 'production');
        $app->booted(fn () => routes($app->make('router')));
        return $app;
    }

    function routes(Illuminate\Routing\Router $router): void
    {
        $router->middleware('web')->group(function () use ($router) {
            $router->get('/', fn () => '<!doctype html><title>app</title><form action="/greet" method="post">'
                . '<input name="_token" value="' . csrf_token() . '"><input name="name"></form>');
            $router->post('/greet', function (Request $request) {
                $request->session()->put('name', $request->validate(['name' => 'required|max:80'])['name']);
                return redirect('/greeting')->withCookie(cookie('visited', 'yes', 60));
            });
            $router->get('/greeting', fn (Request $request) =>
                'Hello, ' . e($request->session()->get('name', 'stranger')) . '! ' . $request->cookie('visited', 'first visit'));
            accounts($router);
            $router->post('/upload', function (Request $request) {
                $file = $request->file('file');
                return ['name' => $file->getClientOriginalName(), 'size' => $file->getSize(), 'sha256' => hash_file('sha256', $file->path()),
                    'note' => $request->input('note')];
            });
        });
        $router->get('/users/{id}', fn (Request $request, string $id) =>
            ['id' => (int) $id, 'query' => $request->query(), 'url' => $request->url(), 'secure' => $request->secure(), 'ip' => $request->ip()]);
        $router->put('/users/{id}', fn (Request $request, string $id) => response()->json(['id' => (int) $id] + $request->json()->all(), 201));
        $router->get('/stream', fn () => response()->stream(function () {
            for ($number = 0; $number < 1000; $number++) {
                echo str_pad((string) $number, 99, '.'), "\n";
            }
        }));
    }
}
