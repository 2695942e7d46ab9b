<?php

// A worker script with its own session handler, which it sets once: when the application is loaded, or, with TEST_LATE, in its
// first request.

declare(strict_types=1);

final class CountingHandler extends SessionHandler
{
    public int $opened = 0;

    public function open(string $path, string $name): bool
    {
        $this->opened++;
        return parent::open($path, $name);
    }
}

$handler = new CountingHandler();
$isSet = !isset($_SERVER['TEST_LATE']);
if ($isSet) {
    session_set_save_handler($handler, true);
}
$handle = static function () use ($handler, &$isSet): void {
    if (!$isSet) {
        session_set_save_handler($handler, true);
        $isSet = true;
    }
    if ($_SERVER['REQUEST_URI'] === '/session') {
        session_start();
        $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
        echo $_SESSION['n'], ' ', session_id(), ' ';
    }
    echo $handler->opened;
};
while (frankenphp_handle_request($handle)) {
}
