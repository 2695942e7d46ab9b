<?php

// A front controller as under PHP-FPM, which runs the action of the path.

declare(strict_types=1);

$actions = require __DIR__ . '/actions.php';
$name = trim((string) parse_url((string) $_SERVER['REQUEST_URI'], PHP_URL_PATH), '/');
isset($actions[$name]) ? $actions[$name]() : http_response_code(404);
