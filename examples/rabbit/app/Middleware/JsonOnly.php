<?php

declare(strict_types=1);

namespace App\Middleware;

use Apus\HttpException;
use Apus\Request;
use Apus\Response;

final class JsonOnly
{
    public function handle(Request $request, callable $next): Response
    {
        return $request->isJson() ? $next($request) : throw new HttpException(415, 'Only JSON is accepted.');
    }
}
