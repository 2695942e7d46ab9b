<?php

declare(strict_types=1);

namespace App\Middleware;

use Apus\Request;
use Apus\Response;

final class Language
{
    public function handle(Request $request, callable $next): Response
    {
        $request->attributes['language'] = str_starts_with((string) $request->header('Accept-Language'), 'zh') ? 'zh' : 'en';
        return $next($request)->header('Vary', 'Accept-Language');
    }
}
