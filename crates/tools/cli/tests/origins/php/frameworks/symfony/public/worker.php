<?php
// The same kernel as a resident worker, as Symfony's Runtime has it for FrankenPHP.
use Symfony\Component\HttpFoundation\Request;

require_once __DIR__ . '/../application.php';

$kernel = new App('prod', false);
while (frankenphp_handle_request(static function () use ($kernel): void {
    $request = Request::createFromGlobals();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
})) {
}
