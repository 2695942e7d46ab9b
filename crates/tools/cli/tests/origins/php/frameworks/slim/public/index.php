<?php
// The same small application on Slim, which leaves sessions to PHP.
require_once '/usr/share/php/Slim/autoload.php';

session_name('slim_session');
session_start(['cookie_samesite' => 'Lax', 'cookie_httponly' => true]);

$app = new Slim\App();
$app->get('/', function ($request, $response) {
    $_SESSION['token'] ??= bin2hex(random_bytes(16));
    return $response->write('<!doctype html><title>app</title><form action="/greet" method="post">'
        . '<input name="_token" value="' . $_SESSION['token'] . '"><input name="name"></form>');
});
$app->post('/greet', function ($request, $response) {
    $form = $request->getParsedBody();
    if (($form['_token'] ?? null) !== ($_SESSION['token'] ?? '')) {
        return $response->withStatus(419, 'Page Expired')->write('expired');
    }
    $_SESSION['name'] = $form['name'];
    setcookie('visited', 'yes', ['expires' => time() + 3600, 'path' => '/', 'samesite' => 'Lax']);
    return $response->withRedirect($request->getUri()->getBaseUrl() . '/greeting');
});
$app->get('/greeting', fn ($request, $response) => $response->write('Hello, ' . htmlspecialchars($_SESSION['name'] ?? 'stranger')
    . '! ' . $request->getCookieParam('visited', 'first visit')));
$app->post('/upload', function ($request, $response) {
    $file = $request->getUploadedFiles()['file'];
    return $response->withJson(['name' => $file->getClientFilename(), 'size' => $file->getSize(),
        'sha256' => hash_file('sha256', $file->file), 'note' => $request->getParsedBody()['note'] ?? null]);
});
$app->get('/users/{id}', function ($request, $response, $arguments) {
    $uri = $request->getUri();
    return $response->withJson(['id' => (int) $arguments['id'], 'query' => $request->getQueryParams(),
        'url' => $uri->getBaseUrl() . '/' . ltrim($uri->getPath(), '/'), 'secure' => $uri->getScheme() === 'https',
        'ip' => $request->getServerParam('REMOTE_ADDR')], null, JSON_UNESCAPED_SLASHES);
});
$app->put('/users/{id}', fn ($request, $response, $arguments) =>
    $response->withJson(['id' => (int) $arguments['id']] + json_decode((string) $request->getBody(), true), 201));
$app->get('/stream', function ($request, $response) {
    for ($number = 0; $number < 1000; $number++) {
        $response->write(str_pad((string) $number, 99, '.') . "\n");
    }
    return $response;
});
$app->run();
