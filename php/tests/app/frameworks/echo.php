<?php

// Echoes the method and the body.

while (frankenphp_handle_request(static function (): void {
    echo $_SERVER['REQUEST_METHOD'], ' ', file_get_contents('php://input');
})) {
}
