<?php
// The same application as a resident worker; each request gets a copy of it, as in Octane.
use Illuminate\Container\Container;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Facade;

require_once __DIR__ . '/../application.php';

$app = application(dirname(__DIR__));
$app->make(Illuminate\Contracts\Http\Kernel::class)->bootstrap();

while (frankenphp_handle_request(static function () use ($app): void {
    $own = clone $app;
    foreach (['session', 'session.store', 'cookie', Illuminate\Session\Middleware\StartSession::class] as $name) {
        $own->forgetInstance($name);
    }
    $own->instance('app', $own);
    $own->instance(Container::class, $own);
    Container::setInstance($own);
    Facade::clearResolvedInstances();
    Facade::setFacadeApplication($own);
    $router = clone $app->make('router');
    $router->setContainer($own);
    $own->instance('router', $router);
    $kernel = new Kernel($own, $router);
    $response = $kernel->handle($request = Request::capture())->send();
    $kernel->terminate($request, $response);
    // The connections belong to the process.
    foreach ($app->make('db')->getConnections() as $connection) {
        $connection->rollBack(0);
        $connection->flushQueryLog();
    }
})) {
}
