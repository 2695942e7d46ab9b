<?php

/** Runs the scripts of index.php in a resident worker. */

$scripts = require __DIR__ . '/index.php';
while (frankenphp_handle_request(static function () use ($scripts): void {
    ($scripts[strtok($_SERVER['REQUEST_URI'], '?')] ?? static fn () => http_response_code(404))();
})) {
    // Output between two requests belongs to none.
    echo 'printed between requests';
}
