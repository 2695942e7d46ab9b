<?php
// One line, as the program of a request or, where it may stay, as a worker.
$hello = static function (): void {
    echo 'Hello, World!';
};
if (!function_exists('frankenphp_handle_request')) {
    $hello();
    return;
}
while (frankenphp_handle_request($hello)) {
}
