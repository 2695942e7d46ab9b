<?php
// Reads the request body in pieces, and prints its size and hash.
$input = fopen('php://input', 'rb');
$hash = hash_init('sha256');
$size = hash_update_stream($hash, $input);
echo $_SERVER['REQUEST_METHOD'], ' ', $size, ' ', hash_final($hash);
