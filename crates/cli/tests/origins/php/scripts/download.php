<?php
// 50 MB, no two lines of which are alike.
header('Content-Type: application/octet-stream');
for ($number = 0; $number < 50 << 20; $number += 64 << 10) {
    $lines = '';
    for ($line = 0; $line < 64 << 10; $line += 8) {
        $lines .= sprintf("%07d\n", ($number + $line) / 8);
    }
    echo $lines;
}
