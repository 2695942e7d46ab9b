<?php

// A worker script as for FrankenPHP, which runs the action of the path.

declare(strict_types=1);

$actions = require __DIR__ . '/actions.php';
$handle = static function () use ($actions): void {
    $name = trim((string) parse_url((string) $_SERVER['REQUEST_URI'], PHP_URL_PATH), '/');
    isset($actions[$name]) ? $actions[$name]() : http_response_code(404);
};
while (frankenphp_handle_request($handle)) {
    // Output between two requests belongs to none.
    echo 'printed between requests';
    header('X-Between: 1');
}
