<?php

frankenphp_handle_request(static function (): void {
    register_shutdown_function(static function (): void {
        header('X-Exit: 2');
        echo ' shutdown';
        exit;
    });
    echo 'before';
    exit;
});
