<?php

// Says what was sent.

while (frankenphp_handle_request(static function (): void {
    echo $_SERVER['REQUEST_METHOD'], ' ', file_get_contents('php://input');
})) {
}
