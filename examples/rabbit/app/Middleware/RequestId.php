<?php

declare(strict_types=1);

namespace App\Middleware;

use Apus\Request;
use Apus\Response;

final class RequestId
{
    public function handle(Request $request, callable $next): Response
    {
        $id = preg_replace('/[^\w.-]/', '', (string) $request->header('X-Request-Id'));
        return $next($request)->header('X-Request-Id', $id === '' ? bin2hex(random_bytes(8)) : substr($id, 0, 64));
    }
}
