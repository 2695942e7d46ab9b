<?php

/** Controllers, middlewares of single routes, and services. */

declare(strict_types=1);

namespace Apus\Tests;

define(__NAMESPACE__ . '\CONTROLLERS', APP . '/controllers/index.php');

return [
    'controllers by name, with the namespace of their group' => static function (Server $server): void {
        $worker = $server->worker('native', CONTROLLERS);
        // Each request gets a new object.
        for ($i = 0; $i < 2; $i++) {
            $response = $worker->request(parameters('/home/'));
            check([$response->status, $response->body], [200, '<p>1 /home/</p>'], 'showMessage() without a return');
            check($response->field('content-type'), 'text/html; charset=utf-8', 'type');
        }
        $response = $worker->request(parameters('/home/', ['REQUEST_METHOD' => 'POST']));
        check([$response->status, $response->body], [404, '<p>nothing</p>'], 'another status');
        has($worker->request(parameters('/home/template'))->body, '<h1>T</h1>', 'show()');
        check($worker->request(parameters('/home/silent'))->status, 204, 'no message, no result');
        check($worker->request(parameters('/home/deep/7'))->body, 'plain 7', 'a namespace within another');
        check($worker->request(parameters('/home/absolute/8'))->body, 'plain 8', 'an absolute namespace');
        check($worker->request(parameters('/qualified'))->body, '<p>1 /qualified</p>', 'without a group');
        $worker->stop();
    },
    'middlewares of a single route, inside of the middlewares of its group' => static function (Server $server): void {
        $worker = $server->worker('native', CONTROLLERS);
        check($worker->request(parameters('/home/'))->fields['x-trail'], ['b', 'a'], 'group and route');
        check($worker->request(parameters('/home/bare'))->fields['x-trail'], ['a'], 'the group only');
        check($worker->request(parameters('/qualified'))->field('x-trail'), null, 'none');
        $worker->stop();
    },
    'services as arguments: of the worker, or new for each request' => static function (Server $server): void {
        $worker = $server->worker('native', CONTROLLERS);
        foreach (['Ada', 'Alan'] as $name) {
            $response = $worker->request(parameters("/home/services/$name"));
            check($response->json(), ["Hello $name", "/home/services/$name", 1, true, ['stamped', 'stamped', $name], 5], $name);
            check($response->fields['x-stamp'], ['1', '2'], 'one object of the middleware for a request');
        }
        check($worker->request(parameters('/optional'))->json(), [true, 1], 'optional services');
        $response = $worker->request(parameters('/shelf'));
        check($response->status, 500, 'a service of the worker that would keep the request');
        has($worker->logs[0]['text'], 'App\Shelf lives as long as the worker and cannot get Apus\Request', 'log');
        check($worker->event(['kind' => 'task', 'name' => 'clock', 'id' => '1'], 'null')->status, 200, 'a task');
        check($worker->logs[0]['text'], 'clock 1', 'the same service');
        check($worker->event(['kind' => 'task', 'name' => 'request', 'id' => '2'], 'null')->status, 500, 'a task has no request');
        has($worker->logs[0]['text'], 'there is no request', 'log');
        $worker->stop();
    },
    'mistakes in routes are found before the worker is ready' => static function (Server $server): void {
        foreach ([
            'class' => 'the route /fault: there is no class Nobody',
            'method' => 'the route /fault: Method App\Home\IndexController::nothing() does not exist',
            'middleware' => 'the route /fault: there is no middleware unknown',
            'everywhere' => 'there is no middleware nowhere',
            'parameter' => 'the route /fault/{id:int}: the handler needs $number',
            'service' => 'the route /fault: there is no service Countable',
            'model' => 'the route /fault/{clock}: the parameter clock of the path is no App\Clock',
            'circle' => 'App\One needs App\Two needs App\One',
            'handle' => 'the middleware App\Clock has no method handle',
        ] as $fault => $message) {
            $worker = $server->boot('native', CONTROLLERS, ['TEST_FAULT' => $fault]);
            has($worker->expect(FAILED)['payload'], $message, $fault);
            $worker->end();
        }
    },
    'state of a library is restored, or the worker is replaced' => static function (Server $server): void {
        $worker = $server->worker('native', CONTROLLERS);
        check($worker->request(parameters('/library/7'))->body, '0', 'the first');
        check($worker->request(parameters('/library/13'))->body, '0', 'restored');
        check($worker->bye, 'error', 'what cannot be restored');
        has($worker->logs[0]['text'], 'an unlucky value', 'log');
        $worker->end();
    },
];
