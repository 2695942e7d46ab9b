<?php

// A worker script with Slim 3, which creates an application for each request.

declare(strict_types=1);

require_once '/usr/share/php/Slim/autoload.php';

use Slim\App;

while (frankenphp_handle_request(static function (): void {
    $app = new App(['settings' => ['displayErrorDetails' => true]]);
    $app->map(['GET', 'POST'], '/hello/{name}', function ($request, $response, array $arguments) {
        $file = $request->getUploadedFiles()['f'] ?? null;
        if ($file !== null) {
            $to = sys_get_temp_dir() . '/apus-slim-' . getmypid();
            $file->moveTo($to);
            $moved = file_get_contents($to);
            unlink($to);
        }
        return $response->withStatus(202)->withHeader('X-Test', 'yes')
            ->withJson([$arguments['name'], $request->getQueryParams(), $request->getParsedBody(), $moved ?? null, $request->getHeaderLine('X-One')]);
    });
    $app->run();
})) {
}
