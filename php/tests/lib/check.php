<?php

/** Checks, waiting, and the constants of the wire protocol. */

declare(strict_types=1);

namespace Apus\Tests;

const REQUEST = 1;
const BODY = 2;
const CANCEL = 3;
const PING = 4;
const STOP = 5;
const EVENT = 6;
const HELLO = 65;
const READY = 66;
const RESPONSE = 67;
const CHUNK = 68;
const PULL = 69;
const PONG = 70;
const LOG = 71;
const COMMAND = 72;
const FAILED = 73;
const BYE = 74;
const INTERIM = 75;

define(__NAMESPACE__ . '\RUNTIME', realpath(__DIR__ . '/../../apus.php'));
define(__NAMESPACE__ . '\APP', realpath(__DIR__ . '/../app'));

/** The functions that Apus disables in its own php-cgi processes, as in README.md. */
const REPLACED = 'is_uploaded_file,move_uploaded_file,getallheaders,apache_request_headers,ob_get_level,flush,connection_aborted';

/** A failed check. */
class Failure extends \RuntimeException
{
}

/** The worker closed its connection. */
final class WorkerGone extends Failure
{
}

function check(mixed $is, mixed $expected, string $what): void
{
    if ($is !== $expected) {
        throw new Failure("$what: expected " . show($expected) . ', got ' . show($is));
    }
}

function has(string $text, string $part, string $what): void
{
    if (!str_contains($text, $part)) {
        throw new Failure("$what: " . show($part) . ' is not in ' . show($text));
    }
}

function show(mixed $value): string
{
    $text = is_string($value) ? '"' . $value . '"' : (string) json_encode($value, JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE);
    return strlen($text) > 1500 ? substr($text, 0, 1500) . '... (' . strlen($text) . ' bytes)' : $text;
}

function wait(callable $condition, string $what): void
{
    $until = microtime(true) + 10;
    while (!$condition()) {
        if (microtime(true) > $until) {
            throw new Failure("not within ten seconds: $what");
        }
        usleep(2000);
    }
}

/**
 * Parameters of a request as Apus sends them.
 *
 * @param array<string, string> $more
 * @return array<string, string>
 */
function parameters(string $target, array $more = []): array
{
    [$path, $query] = explode('?', $target, 2) + [1 => ''];
    return $more + [
        'REQUEST_METHOD' => 'GET',
        'REQUEST_URI' => $target,
        'QUERY_STRING' => $query,
        'SCRIPT_NAME' => '/index.php',
        'DOCUMENT_URI' => $path,
        'DOCUMENT_ROOT' => APP,
        'SERVER_PROTOCOL' => 'HTTP/1.1',
        'GATEWAY_INTERFACE' => 'CGI/1.1',
        'SERVER_SOFTWARE' => 'Apus',
        'SERVER_NAME' => 'example.org',
        'SERVER_PORT' => '80',
        'SERVER_ADDR' => '127.0.0.1',
        'REMOTE_ADDR' => '127.0.0.1',
        'REMOTE_PORT' => '50000',
        'REQUEST_SCHEME' => 'http',
        'HTTP_HOST' => 'example.org',
        'HTTP_USER_AGENT' => 'tests',
        'HTTP_ACCEPT' => '*/*',
    ];
}
