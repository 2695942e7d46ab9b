<?php
header('Content-Type: text/plain; charset=utf-8');
echo 'PHP ', PHP_MAJOR_VERSION, ': ', $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'], ' ',
    $_SERVER['PATH_INFO'] ?? '', "\n", $_POST['title'] ?? '';
