<?php

// The smallest worker script.

while (frankenphp_handle_request(static function (): void {
    echo 'hello';
})) {
}
