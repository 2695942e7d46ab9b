<?php

for ($i = 0; $i < 2; $i++) {
    frankenphp_handle_request(static function (): void {
        echo "hello";
    });
}
