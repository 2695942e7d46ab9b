<?php

/** The environment of a request: the superglobals, compared with the same script over plain FastCGI. */

declare(strict_types=1);

namespace Apus\Tests;

/** @param list<array{string, string, string, ?string}> $parts name, data, further parameters of the disposition, type */
function multipart(array $parts, string $boundary = 'b0und4ry'): string
{
    $out = '';
    foreach ($parts as [$name, $body, $more, $type]) {
        $out .= "--$boundary\r\nContent-Disposition: form-data; name=\"$name\"$more\r\n" . ($type !== null ? "Content-Type: $type\r\n" : '') . "\r\n$body\r\n";
    }
    return "$out--$boundary--\r\n";
}

/** @param array<string, string> $more */
function same(Server $server, Worker $worker, string $target, array $more, string $body = '', int $piece = 0, string $what = ''): void
{
    $parameters = parameters($target, $more + ($body !== '' ? ['CONTENT_LENGTH' => (string) strlen($body)] : []));
    $parameters['SCRIPT_FILENAME'] = APP . '/index.php';
    // php-cgi requires it and passes it on, PHP-FPM ignores it.
    $parameters['REDIRECT_STATUS'] = '200';
    [$status, , $plain] = $server->plain($parameters, $body);
    check($status, 200, "$what: status of the plain request ($plain)");
    $response = $worker->request($parameters, $body, $piece);
    $expected = json_decode($plain, true, 64);
    if ($expected === null) {
        // Warnings before the JSON must be the same, too.
        check(preg_replace('/(Unknown|\S+apus\.php) on line \d+/', 'X', $response->body), preg_replace('/(Unknown|\S+apus\.php) on line \d+/', 'X', $plain), $what);
        return;
    }
    $is = $response->json();
    foreach ($expected as $part => $value) {
        check($is[$part], $value, "$what: $part of $target " . show($more));
    }
}

return [
    'queries, cookies and credentials are as in PHP' => static function (Server $server): void {
        $worker = $server->worker('classic', APP . '/index.php', ['APUS_KEEP' => '1']);
        foreach ([
            '/dump',
            '/dump?',
            '/dump?a=1&b=2&a=3',
            '/dump?a[]=1&a[]=2&b[x][y]=z&b[x][w]=v',
            '/dump?a.b=1&c%20d=2&%20e=3&f[=4&g]=5&h[i=6',
            '/dump?a=%41%zz&b=+&c=%2B&%5B=1&=x&&x',
            '/dump?a%5Bb%5D=1&1=2&-3=4&a%00b=c',
            '/dump?x=%ff%fe&y=%C3%A4',
            '/dump?word+other',
        ] as $target) {
            same($server, $worker, $target, [], '', 0, 'query');
        }
        foreach ([
            'a=b; c=d',
            'a=b;c=d;  e=f',
            'a=1; a=2; b=%41+%42; c',
            'x.y=1; x y=2; z[a]=1; z[b]=2; q[]=1; q[]=2',
            '__Host-a=1; ..Host-b=2; _.Host-c=3; __Secure-d=4',
            '=x; ; a==b; c="quoted"; d=e%3Bf',
            '1=2; %61=escaped; ä=ü',
            'PHPSESSID=abc; long=' . str_repeat('x', 4000),
        ] as $cookies) {
            same($server, $worker, '/dump?c=get', ['HTTP_COOKIE' => $cookies], '', 0, 'cookies');
        }
        foreach (['Basic ' . base64_encode('user:pass:word'), 'Basic ' . base64_encode('nocolon'), 'basic ' . base64_encode('u:'), 'Basic ' . base64_encode(':p'), 'Digest username="u"', 'Bearer x', 'Basic !!!'] as $value) {
            same($server, $worker, '/dump', ['HTTP_AUTHORIZATION' => $value], '', 0, 'credentials');
        }
        same($server, $worker, '/dump', ['HTTPS' => 'on', 'REMOTE_USER' => 'u', 'HTTP_X_A' => "\x80\xff"], '', 0, 'others');
        same($server, $worker, '/dump', ['PATH_INFO' => '/a/b'], '', 0, 'PATH_INFO');
        $worker->stop();
    },
    'forms are as in PHP' => static function (Server $server): void {
        $worker = $server->worker('classic', APP . '/index.php', ['APUS_KEEP' => '1']);
        $form = ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'application/x-www-form-urlencoded'];
        foreach ([0, 7, 1000] as $piece) {
            foreach (['a=1&b[]=2&b[]=3&c[x][]=4', 'a=b%20c+d&e=%ff', '&&&=', 'x', str_repeat('k=v&', 300), 'a=' . str_repeat('x', 30000)] as $body) {
                same($server, $worker, '/dump?a=get&c[x][]=q', $form, $body, $piece, "form in pieces of $piece");
            }
            same($server, $worker, '/dump', ['CONTENT_TYPE' => 'APPLICATION/X-WWW-FORM-URLENCODED; charset=utf-8'] + $form, 'a=1', $piece, 'type with a parameter');
            same($server, $worker, '/dump', ['CONTENT_TYPE' => 'application/json'] + $form, '{"a":1}', $piece, 'JSON');
            same($server, $worker, '/dump', ['REQUEST_METHOD' => 'PUT'] + $form, 'a=1', $piece, 'PUT');
            same($server, $worker, '/dump', ['REQUEST_METHOD' => 'POST'], 'a=1', $piece, 'no type');
        }
        $worker->stop();
    },
    'multipart forms are as in PHP' => static function (Server $server): void {
        $worker = $server->worker('classic', APP . '/index.php', ['APUS_KEEP' => '1']);
        $random = str_repeat(random_bytes(1000), 30);
        $bodies = [
            'fields' => [['a', '1', '', null], ['b[]', '2', '', null], ['b[]', '3', '', null], ['c[x][y]', "l1\r\nl2", '', null], ['d e.f', 'x', '', 'text/plain']],
            'a file' => [['f', $random, '; filename="a.bin"', 'application/octet-stream'], ['t', 'text', '', null]],
            'an empty file' => [['f', '', '; filename="empty.txt"', 'text/plain']],
            'no file' => [['f', '', '; filename=""', 'application/octet-stream']],
            'nested files' => [['f[]', 'one', '; filename="1.txt"', 'text/plain'], ['f[]', 'two', '; filename="2.txt"', 'text/plain'], ['g[a][b]', 'three', '; filename="3.txt"', 'text/plain']],
            'paths' => [['f', 'x', '; filename="C:\\\\dir\\\\name.txt"', 'text/plain'], ['g', 'x', '; filename="../../etc/passwd"', 'text/plain'], ['h', 'x', '; filename="q\"uote.txt"', 'text/plain']],
            'a boundary in parts' => [['f', "a\r\n--b0und4r\r\n--b0und\r\n-", '; filename="x"', 'text/plain'], ['g', "\r\n", '', null]],
            'too large for the form' => [['MAX_FILE_SIZE', '10', '', null], ['f', str_repeat('x', 11), '; filename="x"', 'text/plain'], ['g', str_repeat('x', 10), '; filename="y"', 'text/plain']],
            'too large for the server' => [['f', str_repeat('x', 614401), '; filename="x"', 'text/plain'], ['g', str_repeat('x', 614400), '; filename="y"', 'text/plain']],
            'a file without type' => [['f', 'x', '; filename="x"', null]],
            'a name that is none' => [['', 'x', '', null], ['ok', 'y', '', null]],
        ];
        foreach ([0, 13, 100000] as $piece) {
            foreach ($bodies as $what => $parts) {
                if ($piece === 13 && str_starts_with($what, 'too large for the server')) {
                    continue;
                }
                $type = ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'multipart/form-data; boundary=b0und4ry'];
                same($server, $worker, '/dump?q=1', $type, multipart($parts), $piece, "$what in pieces of $piece");
            }
        }
        $cut = substr(multipart($bodies['a file']), 0, -15000);
        same($server, $worker, '/dump', ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'multipart/form-data; boundary="b0und4ry"'], multipart($bodies['fields']), 0, 'quoted boundary');
        $response = $worker->request(parameters('/dump', ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'multipart/form-data; boundary=b0und4ry']), substr(multipart([['f', $random, '; filename="a"', 'x/y']]), 0, 9000))->json();
        check($response['files']['f']['error'], UPLOAD_ERR_PARTIAL, 'a file that was cut off');
        $worker->stop();
        check(glob($server->folder . '/php*') ?: [], [], 'temporary files that are left');
    },
    'php://input can be read repeatedly, and other addresses work, too' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        foreach ([0, 100, 65536] as $piece) {
            $body = $piece === 100 ? random_bytes(5000) : random_bytes(250000);
            $response = $worker->request(parameters('/input', ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'application/octet-stream']), $body, $piece);
            $hash = md5($body);
            check($response->body, substr($body, 0, 5) . '|' . strlen($body) . "|$hash|$hash|kept|FILTERED", "in pieces of $piece");
        }
        check($worker->request(parameters('/input'))->body, '|0|' . md5('') . '|' . md5('') . '|kept|FILTERED', 'without a body');
        $worker->stop();
    },
    'a large body is not kept in memory' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $before = $worker->request(parameters('/hello'))->memory;
        $body = random_bytes(1 << 20) . str_repeat('0123456789abcdef', 500000);
        $response = $worker->request(parameters('/unread', ['REQUEST_METHOD' => 'POST']), $body, 262144);
        check($response->body, 'not read', 'a body that nobody reads is not pulled');
        $parts = [['f', substr($body, 0, 500000), '; filename="x"', 'a/b'], ['g', str_repeat('y', 400000), '; filename="y"', 'a/b']];
        $multipart = multipart($parts);
        $response = $worker->request(parameters('/dump', ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'multipart/form-data; boundary=b0und4ry']), $multipart, 262144);
        check($response->json()['files']['f']['size'], 500000, 'size');
        check($response->memory < $before + 1500000, true, "memory $before then {$response->memory}");
        $worker->stop();
    },
    'uploads are files of this request only' => [['own', 'pool'], static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $type = ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'multipart/form-data; boundary=b0und4ry'];
        $body = multipart([['f', 'uploaded', '; filename="x"', 'text/plain']]);
        check($worker->request(parameters('/upload', $type), $body)->json(), [true, true, md5('uploaded'), false, false], 'moved');
        $path = $worker->request(parameters('/tmp', $type), $body)->body;
        check(str_starts_with($path, $server->folder . '/php'), true, $path);
        check(file_exists($path), false, 'the file after the request');
        $worker->stop();
    }],
    'a client that disconnects while its body is read' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $worker->begin(parameters('/dump', ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'multipart/form-data; boundary=b0und4ry']), '', true);
        $worker->expect(PULL);
        $worker->send(BODY, substr(multipart([['f', 'half', '; filename="x"', 'text/plain']]), 0, 100));
        $worker->expect(PULL);
        $worker->send(CANCEL);
        check($worker->response()->status, 200, 'status');
        check($worker->request(parameters('/hello'))->body, 'hello', 'the next');
        $worker->stop();
        check(glob($server->folder . '/php*') ?: [], [], 'temporary files that are left');
    },
    'a body beyond post_max_size' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $type = ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'application/x-www-form-urlencoded'];
        $large = 'a=' . str_repeat('x', 4194304);
        $response = $worker->request(parameters('/dump', $type + ['CONTENT_LENGTH' => (string) strlen($large)]), $large, 262144);
        has($response->body, 'exceeds the limit', 'warning');
        has($response->body, '"post":[]', 'no fields');
        check($worker->request(parameters('/dump', $type), 'a=1')->json()['post'], ['a' => '1'], 'the next');
        $worker->stop();
    },
    'more variables than max_input_vars' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/frameworks/strict.php');
        foreach ([['/x?' . str_repeat('a[]=1&', 1100), []], ['/x', ['HTTP_COOKIE' => str_repeat('a[]=1; ', 1100)]]] as [$target, $more]) {
            $response = $worker->request(parameters($target, $more));
            check($response->status, 200, 'status');
            has($response->body, 'Input variables exceeded 1000', 'warning');
            has($response->body, '[1000]', 'as many as there may be');
        }
        $worker->stop();
    },
    'getallheaders() returns the header fields of the request' => [['own', 'pool'], static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/worker.php');
        $headers = $worker->request(parameters('/all-headers', ['HTTP_X_ONE_TWO' => '1', 'CONTENT_TYPE' => 'a/b']))->json();
        check($headers['X-One-Two'], '1', 'X-One-Two');
        check($headers['Content-Type'], 'a/b', 'Content-Type');
        check($headers['Host'], 'example.org', 'Host');
        $worker->stop();
    }],
];
