<?php
// Reports all that PHP knows of a request, and leaves a global variable as a careless application would.
// [its length, how often the name of the request is in it]
$seen = fn (string $content) => [strlen($content), substr_count($content, $_GET['id'])];
header('Content-Type: application/json');
header("X-Id: {$_GET['id']}");
setcookie('id', $_GET['id']);
echo json_encode([
    'get' => $_GET, 'post' => $_POST, 'cookie' => $_COOKIE, 'method' => $_SERVER['REQUEST_METHOD'],
    'header' => $_SERVER['HTTP_X_ID'] ?? null, 'content' => $seen(file_get_contents('php://input')),
    'files' => array_map(fn ($file) => [$file['name'], $seen(file_get_contents($file['tmp_name']))], $_FILES),
    'left' => $GLOBALS['left'] ?? null,
]);
$GLOBALS['left'] = $_GET['id'];
