<?php
// The front controller of Laravel.
use Illuminate\Http\Request;

require_once __DIR__ . '/../application.php';

$app = application(dirname(__DIR__));
$kernel = $app->make(Illuminate\Contracts\Http\Kernel::class);
$response = $kernel->handle($request = Request::capture())->send();
$kernel->terminate($request, $response);
