<?php
// Reads what is sent piece by piece, and tells what it was.
$input = fopen('php://input', 'rb');
$hash = hash_init('sha256');
$size = hash_update_stream($hash, $input);
echo $_SERVER['REQUEST_METHOD'], ' ', $size, ' ', hash_final($hash);
