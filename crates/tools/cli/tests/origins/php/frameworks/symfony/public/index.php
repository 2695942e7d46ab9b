<?php
// The front controller of Symfony.
use Symfony\Component\HttpFoundation\Request;

require_once __DIR__ . '/../application.php';

$kernel = new App('prod', false);
$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
