<?php

/** The examples of WIRE.md, byte by byte. */

declare(strict_types=1);

namespace Apus\Tests;

/** The bytes of an example line: pairs of hexadecimal digits, quoted text, and plain text. */
function bytes(string $line): string
{
    preg_match_all('/\G\s*(?:"([^"]*)"|(\S+))/', $line, $words, PREG_SET_ORDER);
    $out = '';
    foreach ($words as $word) {
        $bare = $word[2] ?? '';
        $out .= preg_match('/^[0-9a-f]{2}$/', $bare) === 1 ? (string) hex2bin($bare) : $bare . stripcslashes($word[1]);
    }
    return $out;
}

/** The example of WIRE.md that begins with these digits. */
function example(string $begin): string
{
    foreach (file(dirname(RUNTIME) . '/WIRE.md') ?: [] as $line) {
        if (str_starts_with($line, "    $begin")) {
            return bytes($line);
        }
    }
    throw new Failure("WIRE.md has no example $begin");
}

return [
    'the examples equal the frames of a worker' => static function (Server $server): void {
        $worker = $server->boot('worker', APP . '/frameworks/echo.php');
        check(pack('VCCv', 0, $worker->expect(READY)['type'], 0, 0), example('00 00 00 00 42'), 'READY');
        $worker->raw(example('2d 00 00 00 01'));
        check($worker->response()->body, 'POST hi', 'the request');
        $response = example('22 00 00 00 43');
        check(strlen($response), 8 + 0x22, 'the length of a response');
        $parsed = Response::of(substr($response, 8));
        check([$parsed->status, $parsed->memory, $parsed->fields, $parsed->body], [200, 0x100000, ['content-type' => ['x']], 'hello'], 'a response');
        $worker->begin(parameters('/', ['REQUEST_METHOD' => 'POST']), '', true);
        $pull = $worker->expect(PULL);
        check(pack('VCCv', 4, PULL, 0, 0) . $pull['payload'], example('04 00 00 00 45'), 'PULL');
        $worker->raw(example('03 00 00 00 02'));
        check($worker->response()->body, 'POST end', 'the body');
        $worker->send(STOP);
        $bye = $worker->expect(BYE);
        check(pack('VCCv', 4, BYE, 0, 0) . $bye['payload'], example('04 00 00 00 4a'), 'BYE');
        $worker->end();
    },
];
