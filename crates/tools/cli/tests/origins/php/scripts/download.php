<?php
// 50 MB in which no line occurs twice.
header('Content-Type: application/octet-stream');
for ($number = 0; $number < 50 << 20; $number += 64 << 10) {
    $lines = '';
    for ($line = 0; $line < 64 << 10; $line += 8) {
        $lines .= sprintf("%07d\n", ($number + $line) / 8);
    }
    echo $lines;
}
