<?php

// A worker script that turns every warning into an exception, as frameworks do.

declare(strict_types=1);

set_error_handler(static fn (int $level, string $text): bool => throw new ErrorException($text, 0, $level));

while (frankenphp_handle_request(static function (): void {
    echo json_encode([count($_GET['a'] ?? $_COOKIE['a'] ?? [])]);
})) {
}
