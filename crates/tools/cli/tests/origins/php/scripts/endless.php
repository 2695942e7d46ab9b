<?php
// Sends output until the client disconnects, and records how the script ended.
register_shutdown_function(function () {
    file_put_contents(__DIR__ . '/ended', connection_aborted() ? "aborted\n" : "heard out\n", FILE_APPEND);
});
for (;;) {
    echo str_repeat('x', 32 << 10);
    flush();
    usleep(1000);
}
