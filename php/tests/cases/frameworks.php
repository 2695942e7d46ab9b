<?php

/** Unmodified libraries from Debian packages. */

declare(strict_types=1);

namespace Apus\Tests;

const UPLOAD = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"n.txt\"\r\nContent-Type: text/plain\r\n\r\nfile\r\n"
    . "--b\r\nContent-Disposition: form-data; name=\"t\"\r\n\r\ntext\r\n--b--\r\n";

return [
    'HttpFoundation of Symfony' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/frameworks/foundation.php');
        for ($i = 0; $i < 3; $i++) {
            $response = $worker->request(parameters("/x?a=$i", ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'application/json', 'CONTENT_LENGTH' => '2']), '{}');
            check([$response->status, $response->field('x-test'), $response->busy], [202, 'yes', true], 'send() finishes the response');
            check($response->json(), ['POST', '/x', ['a' => (string) $i], '{}', null, []], 'request');
            has($response->field('set-cookie') ?? '', 'c=d', 'cookie');
            $worker->expect(READY);
            $response = $worker->request(parameters('/up', ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'multipart/form-data; boundary=b']), UPLOAD);
            check(array_slice($response->json(), 4), ['file', ['t' => 'text']], 'an upload that is moved');
            $worker->expect(READY);
        }
        check($worker->bye, null, 'BYE');
        $worker->stop();
    },
    'Slim' => static function (Server $server): void {
        $worker = $server->worker('worker', APP . '/frameworks/slim.php');
        for ($i = 0; $i < 3; $i++) {
            $response = $worker->request(parameters("/hello/me?a=$i", ['HTTP_X_ONE' => '1']));
            check([$response->status, $response->field('x-test'), $response->json()], [202, 'yes', ['me', ['a' => (string) $i], null, null, '1']], 'request');
            $response = $worker->request(parameters('/hello/you', ['REQUEST_METHOD' => 'POST', 'CONTENT_TYPE' => 'multipart/form-data; boundary=b']), UPLOAD);
            check($response->json(), ['you', [], ['t' => 'text'], 'file', ''], 'an upload that is moved');
            check($worker->request(parameters('/none'))->status, 404, 'no such route');
        }
        $worker->stop();
    },
];
