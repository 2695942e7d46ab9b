<?php
// One line, as a script per request or, where it can be resident, as a worker.
$hello = static function (): void {
    echo 'Hello, World!';
};
if (!function_exists('frankenphp_handle_request')) {
    $hello();
    return;
}
while (frankenphp_handle_request($hello)) {
}
