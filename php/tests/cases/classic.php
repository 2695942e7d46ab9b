<?php

/** Classic mode: front controllers that are included for each request. */

declare(strict_types=1);

namespace Apus\Tests;

return [
    'a single file is included repeatedly, without state of earlier requests' => static function (Server $server): void {
        $worker = $server->worker('classic', APP . '/classic/single.php');
        for ($i = 0; $i < 3; $i++) {
            check($worker->request(parameters('/'))->body, 'count 1 kept 1 classic none', 'body');
            $response = $worker->request(parameters('/x', ['PATH_INFO' => '/a', 'SCRIPT_FILENAME' => APP . '/classic/single.php']));
            check([$response->body, $response->field('x-mode')], ['count 1 kept 1 classic single.php', '/a'], 'with its name');
        }
        check($worker->request(parameters('/?do=throw'))->status, 200, 'thrown, and shown');
        check($worker->request(parameters('/', ['SCRIPT_FILENAME' => APP . '/index.php']))->status, 404, 'another script');
        check($worker->request(parameters('/?do=exit'))->body, 'exited', 'exit()');
        check($worker->bye, 'exit', 'BYE');
        $worker->end();
    },
    'an application with include_once gets a process for each request' => static function (Server $server): void {
        foreach (['index.php' => 'hello', 'classic/functions.php' => 'said nothing', 'classic/nested.php' => 'said nothing'] as $script => $body) {
            $worker = $server->worker('classic', APP . "/$script");
            check($worker->request(parameters('/hello'))->body, $body, 'body');
            check($worker->bye, 'exit', 'BYE');
            $worker->end();
        }
    },
    'an application with a class loader keeps its process' => static function (Server $server): void {
        $worker = $server->worker('classic', APP . '/classic/composer/index.php');
        for ($i = 1; $i < 4; $i++) {
            check($worker->request(parameters('/'))->body, "framework $i", 'body');
        }
        $worker->stop();
        $worker = $server->worker('classic', APP . '/classic/composer/index.php', ['APUS_KEEP' => '0']);
        check($worker->request(parameters('/'))->body, 'framework 1', 'body');
        check($worker->bye, 'exit', 'BYE');
        $worker->end();
    },
    'an application that cannot be included twice leaves the second request to another worker' => static function (Server $server): void {
        $worker = $server->worker('classic', APP . '/classic/nested.php', ['APUS_KEEP' => '1']);
        check($worker->request(parameters('/?say=a'))->body, 'said a', 'body');
        try {
            $worker->request(parameters('/?say=b'));
            throw new Failure('there was a response');
        } catch (WorkerGone) {
            check($worker->bye, 'again', 'BYE');
        }
        $worker->end();
        $worker = $server->worker('classic', APP . '/classic/nested.php', ['APUS_KEEP' => '1']);
        $worker->request(parameters('/?say=a'));
        check($worker->request(parameters('/', ['REQUEST_METHOD' => 'POST']))->status, 500, 'what is not safe is not repeated');
        $worker->end();
    },
    'a script that is missing or not PHP is an error of this request' => static function (Server $server): void {
        $worker = $server->worker('classic', APP . '/classic/single.php', ['APUS_KEEP' => '1']);
        check($worker->request(parameters('/', ['SCRIPT_FILENAME' => APP . '/broken/syntax.php']))->status, 200, 'status of an error that is shown');
        check($worker->request(parameters('/'))->status, 200, 'the next');
        $worker->stop();
    },
];
