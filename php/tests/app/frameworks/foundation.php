<?php

// A worker script with Symfony's HttpFoundation, which calls fastcgi_finish_request() if it exists.

declare(strict_types=1);

require_once '/usr/share/php/Symfony/Component/HttpFoundation/autoload.php';

use Symfony\Component\HttpFoundation\Cookie;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

while (frankenphp_handle_request(static function (): void {
    $request = Request::createFromGlobals();
    $file = $request->files->get('f');
    if ($file !== null) {
        $moved = $file->isValid() ? file_get_contents((string) $file->move(sys_get_temp_dir(), 'apus-foundation-' . getmypid())) : 'not valid';
        @unlink(sys_get_temp_dir() . '/apus-foundation-' . getmypid());
    }
    $response = new Response(json_encode([$request->getMethod(), $request->getPathInfo(), $request->query->all(), $request->getContent(), $moved ?? null,
        $request->request->all(), ]), 202, ['X-Test' => 'yes']);
    $response->headers->setCookie(Cookie::create('c', 'd'));
    $response->prepare($request)->send();
})) {
}
