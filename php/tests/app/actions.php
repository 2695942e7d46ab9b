<?php

/** The actions of the test application, by path. */

declare(strict_types=1);

return [
    'dump' => static function (): void {
        header('Content-Type: application/json');
        $server = $_SERVER;
        unset($server['REQUEST_TIME'], $server['REQUEST_TIME_FLOAT'], $server['FCGI_ROLE'], $server['FRANKENPHP_WORKER']);
        ksort($server);
        $files = $_FILES;
        array_walk_recursive($files, static function (mixed &$value): void {
            if (is_string($value) && str_starts_with($value, '/') && is_file($value)) {
                $value = 'content ' . md5_file($value);
            }
        });
        echo json_encode([
            'get' => $_GET,
            'post' => $_POST,
            'cookie' => $_COOKIE,
            'request' => $_REQUEST,
            'files' => $files,
            'input' => md5((string) file_get_contents('php://input')),
            'server' => $server,
        ], JSON_INVALID_UTF8_SUBSTITUTE | JSON_THROW_ON_ERROR | JSON_PARTIAL_OUTPUT_ON_ERROR);
    },
    'hello' => static function (): void {
        echo 'hello';
    },
    'input' => static function (): void {
        $stream = fopen('php://input', 'r');
        $first = fread($stream, 5);
        rewind($stream);
        $all = stream_get_contents($stream);
        $memory = fopen('php://memory', 'w+');
        fwrite($memory, 'kept');
        rewind($memory);
        $output = fopen('php://output', 'w');
        fwrite($output, $first . '|' . strlen($all) . '|' . md5($all) . '|' . md5(file_get_contents('php://input')) . '|' . fread($memory, 10));
        $temp = new SplFileObject('php://temp', 'w+');
        $temp->fwrite('x');
        file_put_contents('php://filter/write=string.toupper/resource=php://output', '|filtered');
    },
    'unread' => static function (): void {
        echo 'not read';
    },
    'upload' => static function (): void {
        $to = sys_get_temp_dir() . '/apus-moved-' . getmypid();
        $from = $_FILES['f']['tmp_name'];
        $ours = is_uploaded_file($from);
        $moved = move_uploaded_file($from, $to);
        $content = (string) @file_get_contents($to);
        @unlink($to);
        echo json_encode([$ours, $moved, md5($content), is_uploaded_file('/etc/passwd'), @move_uploaded_file('/etc/hostname', '/tmp/no')]);
    },
    'tmp' => static function (): void {
        echo $_FILES['f']['tmp_name'];
    },
    'headers' => static function (): void {
        setcookie('a', 'b c', ['path' => '/', 'httponly' => true]);
        setcookie('d', 'e');
        header('X-One: 1');
        header('X-One: 2', false);
        header('X-Gone: 1');
        header_remove('X-Gone');
        http_response_code(404);
        echo json_encode([headers_sent(), headers_list()]);
    },
    'status-line' => static function (): void {
        header('HTTP/1.1 410 Long Gone');
        header('Content-Type: text/plain;charset=UTF-8');
    },
    'location' => static function (): void {
        header('Location: /there');
    },
    'state' => static function (): void {
        // The state that must be the same in a new process and in a reused one.
        echo json_encode([
            'ini' => [ini_get('display_errors'), ini_get('memory_limit'), ini_get('precision'), ini_get('max_execution_time'), ini_get('default_charset'),
                ini_get('include_path'), ini_get('session.name'), ini_get('user_agent'), ini_get('mbstring.language')],
            'error_reporting' => error_reporting(),
            'handlers' => [gettype(set_error_handler(null)), gettype(set_exception_handler(null))],
            'locale' => setlocale(LC_ALL, '0'),
            'timezone' => date_default_timezone_get(),
            'umask' => umask(),
            'cwd' => basename((string) getcwd()),
            'encoding' => mb_internal_encoding(),
            'xml' => libxml_use_internal_errors(),
            'env' => [getenv('APUS_TEST'), $_ENV['APUS_TEST'] ?? null],
            'last' => error_get_last(),
            'headers' => headers_list(),
            'status' => http_response_code(),
            'level' => ob_get_level(),
            'session' => [session_id(), session_status(), isset($_SESSION)],
            'globals' => array_values(array_diff(array_keys($GLOBALS), ['actions', 'argv', 'argc', '_SESSION'])),
            'input' => file_get_contents('php://input'),
            'superglobals' => [$_GET, $_POST, $_FILES, $_COOKIE],
            'auth' => $_SERVER['PHP_AUTH_USER'] ?? null,
        ]);
        restore_error_handler();
        restore_exception_handler();
    },
    'spoil' => static function (): void {
        ini_set('display_errors', '0');
        ini_set('memory_limit', '200M');
        ini_set('precision', '3');
        ini_set('default_charset', 'latin1');
        set_include_path('/nowhere');
        ini_set('user_agent', 'spoilt');
        set_time_limit(100);
        error_reporting(E_ERROR);
        set_error_handler(static fn (): bool => true);
        set_error_handler(static fn (): bool => true);
        set_exception_handler(static fn () => null);
        setlocale(LC_ALL, 'C.UTF-8');
        date_default_timezone_set('Asia/Shanghai');
        umask(0);
        chdir('/');
        mb_internal_encoding('ISO-8859-1');
        libxml_use_internal_errors(true);
        putenv('APUS_TEST=1');
        $_ENV['APUS_TEST'] = 1;
        @trigger_error('last');
        header('X-Spoilt: 1');
        http_response_code(418);
        // A worker keeps session settings.
        if (getenv('FRANKENPHP_WORKER') === false) {
            session_name('SPOILT');
        }
        session_start();
        $_SESSION['spoilt'] = 1;
        ob_start();
        echo 'one';
        ob_start(static fn (string $text): string => strtoupper($text));
        echo 'two';
        $_GET['x'] = $_POST['x'] = $_COOKIE['x'] = $_SERVER['SPOILT'] = 'x';
        mt_srand(42);
        stream_wrapper_unregister('http');
        stream_wrapper_restore('http');
    },
    'global' => static function (): void {
        $GLOBALS['left_' . ($_GET['n'] ?? '')] = 1;
        echo 'left';
    },
    'random' => static function (): void {
        echo mt_rand();
        mt_srand(1);
    },
    'session' => static function (): void {
        session_start();
        $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
        echo $_SESSION['n'], ' ', session_id();
    },
    'session-once' => static function (): void {
        // As objects of frameworks do that are created once.
        static $isMade = false;
        if (!$isMade) {
            session_name('ONCE');
            session_cache_limiter('');
            $isMade = true;
        }
        session_start();
        echo $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1, ' ', session_id();
    },
    'session-own' => static function (): void {
        session_set_save_handler(new class () implements SessionHandlerInterface {
            public function open(string $path, string $name): bool
            {
                return true;
            }

            public function close(): bool
            {
                return true;
            }

            public function read(string $id): string|false
            {
                return 'n|i:41;';
            }

            public function write(string $id, string $data): bool
            {
                return true;
            }

            public function destroy(string $id): bool
            {
                return true;
            }

            public function gc(int $lifetime): int|false
            {
                return 0;
            }
        }, true);
        session_start();
        echo ++$_SESSION['n'];
    },
    'session-open' => static function (): void {
        echo json_encode([session_id(), isset($_SESSION)]);
    },
    'session-destroy' => static function (): void {
        session_start();
        $_SESSION = [];
        session_destroy();
        echo 'gone';
    },
    'session-regenerate' => static function (): void {
        session_start();
        session_regenerate_id(true);
        echo session_id();
    },
    'large' => static function (): void {
        header('X-Large: 1');
        for ($i = 0; $i < 40; $i++) {
            echo str_repeat(chr(65 + $i % 26), 25000);
        }
    },
    'once-large' => static function (): void {
        echo str_repeat('x', 5000000);
    },
    'flush' => static function (): void {
        header('X-Flushed: 1');
        echo 'one';
        apus_flush();
        echo 'two';
        ob_flush();
        flush();
        echo 'three';
    },
    'flush-native' => static function (): void {
        echo 'one';
        ob_flush();
        flush();
        echo 'two';
    },
    'nested' => static function (): void {
        ob_start(static fn (string $text): string => "<$text>");
        echo 'a';
        ob_start(static fn (string $text): string => "[$text]");
        echo 'b';
    },
    'unwind' => static function (): void {
        echo 'lost';
        while (ob_get_level() > 0) {
            ob_end_clean();
        }
        header('X-After: 1');
        echo $_GET['say'] ?? '';
    },
    'unwind-flush' => static function (): void {
        echo 'kept ';
        for ($i = ob_get_level(); $i > 0; $i--) {
            ob_end_flush();
        }
        echo 'and more';
    },
    'stuck' => static function (): void {
        echo 'below ';
        ob_start(static fn (string $text): string => strtoupper($text), 0, 0);
        echo 'above';
    },
    'callback-throws' => static function (): void {
        echo 'below ';
        ob_start(static fn (string $text): string => throw new RuntimeException('thrown in a callback'));
        echo 'above';
    },
    'early' => static function (): void {
        echo 'answer';
        frankenphp_finish_request();
        echo 'lost';
        file_put_contents($_GET['file'], 'after');
    },
    'early-native' => static function (): void {
        echo 'answer';
        fastcgi_finish_request();
        echo 'lost';
    },
    'exit' => static function (): void {
        header('X-Exit: 1');
        http_response_code(201);
        register_shutdown_function(static function (): void {
            echo ' shutdown';
        });
        ob_start();
        echo 'before';
        exit(' said');
    },
    'exit-twice' => static function (): void {
        ob_start(static fn (string $text): string => "<$text>");
        echo 'before';
        register_shutdown_function(static function (): void {
            header('X-Exit: 2');
            echo ' shutdown';
            exit;
        });
    },
    'early-hints' => static function (): void {
        header('Link: </style.css>; rel=preload; as=style');
        $sent = [headers_send(103), headers_send(101), headers_send(99 + 100)];
        header('X-Later: 1');
        header('X-Later: 2', false);
        frankenphp_log('a line', FRANKENPHP_LOG_LEVEL_WARN, ['a' => 1]);
        frankenphp_log('another');
        frankenphp_log('a detail', -10);
        echo json_encode([$sent, frankenphp_request_headers(), frankenphp_response_headers(), apache_response_headers()]);
    },
    'head-first' => static function (): void {
        header('X-First: 1');
        echo json_encode([headers_send(404), headers_send(103)]);
    },
    'throw-hidden' => static function (): void {
        ini_set('display_errors', '0');
        throw new RuntimeException('thrown in a test');
    },
    'throw' => static function (): void {
        echo 'before ';
        throw new RuntimeException('thrown in a test');
    },
    'flush-throw' => static function (): void {
        echo 'half';
        apus_flush();
        throw new RuntimeException('thrown in a test');
    },
    'flush-fatal' => static function (): void {
        echo 'half';
        apus_flush();
        new class () implements Iterator {
        };
    },
    'throw-handled' => static function (): void {
        set_exception_handler(static function (Throwable $error): void {
            http_response_code(503);
            echo 'handled ' . $error->getMessage();
        });
        throw new RuntimeException('x');
    },
    'fatal' => static function (): void {
        echo 'before ';
        new class () implements Iterator {
        };
    },
    'call-undefined' => static function (): void {
        undefined_function_of_a_test();
    },
    'memory' => static function (): void {
        $text = 'x';
        while (true) {
            $text .= $text;
        }
    },
    'hold' => static function (): void {
        static $held = [];
        $held[] = str_repeat('x', 3000000);
        echo 'held';
    },
    'time' => static function (): void {
        set_time_limit(1);
        while (true) {
        }
    },
    'burn' => static function (): void {
        if (isset($_GET['limit'])) {
            set_time_limit((int) $_GET['limit']);
        }
        $used = static fn (): float => array_sum(array_map(
            static fn (string $which): float => getrusage()["ru_$which.tv_sec"] + getrusage()["ru_$which.tv_usec"] / 1e6,
            ['utime', 'stime']
        ));
        usleep((int) ($_GET['sleep'] ?? 0));
        for ($until = $used() + (float) $_GET['seconds']; $used() < $until;) {
        }
        echo 'burnt';
    },
    'log-kill' => static function (): void {
        error_log('before the end');
        posix_kill(getmypid(), 9);
    },
    'kill' => static function (): void {
        posix_kill(getmypid(), 9);
    },
    'at-end' => static function (): void {
        apus_at_end(static function (string $word): void {
            echo " $word";
        }, 'end');
        echo 'begin';
    },
    'flush-then-read' => static function (): void {
        echo 'begun ';
        apus_flush();
        while (!Apus\Runtime\Worker::$cancelled) {
            echo '.';
            apus_flush();
            usleep(1000);
        }
        file_put_contents($_GET['file'], 'read ' . strlen(file_get_contents('php://input')));
    },
    'long' => static function (): void {
        for ($i = 0; $i < 5000; $i++) {
            echo str_repeat("$i\n", 1000);
            apus_flush();
        }
        apus_at_end(static fn () => touch($_GET['file']));
    },
    'endless' => static function (): void {
        while (true) {
            echo "event\n";
            apus_flush();
            usleep(10000);
        }
    },
    'endless-print' => static function (): void {
        while (true) {
            echo str_repeat('x', 1000);
        }
    },
    'all-headers' => static function (): void {
        echo json_encode(getallheaders());
    },
    'notice' => static function (): void {
        echo 'before ';
        echo $undefined;
        echo 'after';
    },
];
