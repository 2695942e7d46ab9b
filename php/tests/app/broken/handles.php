<?php

set_exception_handler(static function (Throwable $error): void {
    http_response_code(503);
    echo 'handled ', $error->getMessage();
});
register_shutdown_function(static function (): void {
    exit;
});

throw new RuntimeException('not today');
