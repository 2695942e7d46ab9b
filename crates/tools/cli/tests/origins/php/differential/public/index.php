<?php

/**
 * The scripts of the differential test, one for each path. As the front controller it runs the one of the path; included by
 * worker.php it returns all. It declares no functions, so that a resident worker can include it for each request.
 */

$scripts = [
    // Settings, fields, status and body, all of which the query names.
    '/respond' => static function (): void {
        foreach ($_GET['ini'] ?? [] as $name => $value) {
            ini_set($name, $value);
        }
        foreach ($_GET['header'] ?? [] as $line) {
            header($line);
        }
        foreach ($_GET['add'] ?? [] as $line) {
            header($line, false);
        }
        foreach ($_GET['remove'] ?? [] as $name) {
            header_remove($name);
        }
        if (isset($_GET['status'])) {
            http_response_code((int) $_GET['status']);
        }
        echo $_GET['body'] ?? 'body';
    },
    '/header-with-status' => static function (): void {
        header('X-One: 1', true, (int) $_GET['status']);
        echo http_response_code();
    },
    '/cookies' => static function (): void {
        setcookie('a', 'b c;d', ['path' => '/p', 'secure' => true, 'httponly' => true, 'samesite' => 'Lax']);
        setrawcookie('raw', 'x%20y');
        setcookie('gone', '');
        setcookie('a', 'second');
        echo json_encode($_COOKIE);
    },
    '/remove-all' => static function (): void {
        header('X-One: 1');
        header_remove();
        header('X-Two: 2');
        echo json_encode(headers_list());
    },
    '/late-header' => static function (): void {
        ini_set('display_errors', '1');
        ini_set('html_errors', '0');
        echo str_repeat('.', (int) $_GET['length']);
        header('X-Late: 1');
        echo headers_sent() ? 'sent' : 'not sent';
    },
    '/length' => static function (): void {
        header('Content-Length: ' . $_GET['length']);
        echo 'hello';
    },
    // Output buffers.
    '/download' => static function (): void {
        echo "\n\n", str_repeat(' ', (int) ($_GET['before'] ?? 0));
        if (ob_get_level() > 0) {
            ob_end_clean();
        }
        header('Content-Type: application/octet-stream');
        header('Content-Disposition: attachment; filename="a.bin"');
        echo 'data';
    },
    '/download-loop' => static function (): void {
        echo 'before';
        while (ob_get_level() > 0) {
            ob_end_clean();
        }
        header('Content-Type: application/octet-stream');
        readfile(__DIR__ . '/file.txt');
    },
    '/levels' => static function (): void {
        $levels = [ob_get_level()];
        ob_start();
        $levels[] = ob_get_level();
        echo 'dropped';
        ob_end_clean();
        $levels[] = ob_get_level();
        echo json_encode($levels);
    },
    '/clean' => static function (): void {
        echo 'dropped';
        $length = ob_get_length();
        $contents = ob_get_contents();
        ob_clean();
        echo json_encode([$length, $contents]);
    },
    '/get-clean' => static function (): void {
        echo 'a page';
        $page = ob_get_clean();
        echo strtoupper(var_export($page, true)), json_encode(ob_get_level());
    },
    '/get-flush' => static function (): void {
        echo 'first,';
        $first = ob_get_flush();
        echo 'second,', json_encode($first), json_encode(ob_get_level());
    },
    '/end-flush' => static function (): void {
        echo 'first,';
        ob_end_flush();
        echo 'second,', json_encode(ob_get_level());
    },
    '/status-of-buffers' => static function (): void {
        echo json_encode([ob_get_status()['level']]);
    },
    '/nested' => static function (): void {
        ob_start(static fn (string $text): string => "[$text]");
        echo 'a';
        ob_start();
        echo 'b';
        ob_start(static fn (string $text): string => strtoupper($text));
        echo 'c';
    },
    '/flush' => static function (): void {
        echo 'one,';
        ob_flush();
        flush();
        echo 'two';
    },
    '/large' => static function (): void {
        for ($i = 0; $i < 40; $i++) {
            echo str_repeat(chr(65 + $i % 26), 25000);
        }
    },
    '/clean-after-much' => static function (): void {
        echo str_repeat('x', 3000), str_repeat('y', 3000), str_repeat('z', 10);
        ob_end_clean();
        echo 'end';
    },
    '/php-output' => static function (): void {
        $output = fopen('php://output', 'w');
        fputcsv($output, ['a', 'b c', 'd"e']);
        fprintf($output, '%05d', 7);
        fclose($output);
        file_put_contents('php://output', 'end');
    },
    '/implicit-flush' => static function (): void {
        ob_implicit_flush();
        echo 'one,';
        print 'two';
    },
    // Ends and errors.
    '/exit' => static function (): void {
        http_response_code(202);
        ob_start();
        echo 'before';
        exit(', at the exit');
    },
    '/exit-number' => static function (): void {
        echo 'printed';
        exit(3);
    },
    '/uncaught' => static function (): void {
        echo 'before';
        foreach ($_GET['ini'] ?? [] as $name => $value) {
            ini_set($name, $value);
        }
        throw new DomainException('a <mistake>');
    },
    '/uncaught-with-status' => static function (): void {
        http_response_code(418);
        throw new Error('x');
    },
    '/handled' => static function (): void {
        set_exception_handler(static function (Throwable $error): void {
            http_response_code(503);
            echo 'handled: ', $error->getMessage();
        });
        throw new DomainException('a mistake');
    },
    '/fatal' => static function (): void {
        echo 'before';
        foreach ($_GET['ini'] ?? [] as $name => $value) {
            ini_set($name, $value);
        }
        trigger_error('the end', E_USER_ERROR);
        echo 'never';
    },
    '/memory' => static function (): void {
        foreach ($_GET['ini'] ?? [] as $name => $value) {
            ini_set($name, $value);
        }
        header('X-Before: 1');
        echo 'before';
        echo strlen(str_repeat('x', 1 << 30));
    },
    '/warnings' => static function (): void {
        ini_set('display_errors', '1');
        ini_set('html_errors', $_GET['html']);
        ini_set('error_prepend_string', '<<');
        ini_set('error_append_string', '>>');
        echo $undefined;
        echo intdiv(7, 2), [] . '';
        trigger_error('a <notice>', E_USER_NOTICE);
        trigger_error('old', E_USER_DEPRECATED);
    },
    '/error-handler' => static function (): void {
        set_error_handler(static function (int $level, string $text): bool {
            echo "handled $level: $text\n";
            return true;
        });
        echo $undefined;
        restore_error_handler();
        echo json_encode(error_get_last());
    },
    // Requests.
    '/globals' => static function (): void {
        echo json_encode([$_GET, $_POST, $_COOKIE, $_REQUEST], JSON_PARTIAL_OUTPUT_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE);
    },
    '/server' => static function (): void {
        $server = $_SERVER;
        ksort($server);
        foreach ($server as $name => $value) {
            echo $name, '=', is_array($value) ? json_encode($value) : $value, "\n";
        }
    },
    '/request-headers' => static function (): void {
        $headers = getallheaders();
        ksort($headers);
        echo json_encode($headers), json_encode(apache_request_headers() == $headers);
    },
    '/files' => static function (): void {
        $describe = static function (mixed $value, string|int $key) use (&$describe): mixed {
            if (is_array($value)) {
                array_walk($value, static function (mixed &$inner, string|int $name) use ($describe, $key): void {
                    $inner = $describe($inner, in_array($key, ['tmp_name'], true) ? $key : $name);
                });
                return $value;
            }
            return $key === 'tmp_name' && $value !== '' ? md5_file($value) : $value;
        };
        $files = $_FILES;
        foreach ($files as $name => $file) {
            foreach ($file as $property => $value) {
                $files[$name][$property] = $describe($value, $property);
            }
        }
        echo json_encode([$_POST, $files], JSON_INVALID_UTF8_SUBSTITUTE);
    },
    '/move' => static function (): void {
        $file = $_FILES['f'];
        $to = sys_get_temp_dir() . '/moved-' . bin2hex(random_bytes(8));
        $results = [is_uploaded_file($file['tmp_name']), is_uploaded_file(__FILE__), move_uploaded_file($file['tmp_name'], $to)];
        $results[] = file_get_contents($to);
        $results[] = decoct(fileperms($to) & 0777);
        $results[] = is_uploaded_file($file['tmp_name']);
        unlink($to);
        echo json_encode($results);
    },
    '/input' => static function (): void {
        $hash = static fn (mixed $data): mixed => is_string($data) && strlen($data) > 60 ? md5($data) : $data;
        $results = [];
        $do = static function (string $name, callable $make) use (&$results, $hash): void {
            try {
                $results[$name] = $hash(@$make());
            } catch (Throwable $error) {
                $results[$name] = get_class($error) . ': ' . $error->getMessage();
            }
        };
        foreach (explode(',', $_GET['of'] ?? '') as $of) {
            $do($of, [
                'whole' => static fn () => file_get_contents('php://input'),
                'again' => static fn () => file_get_contents('php://input') . file_get_contents('PHP://INPUT'),
                'part' => static fn () => file_get_contents('php://input', false, null, 3, 5),
                'behind' => static fn () => file_get_contents('php://input', false, null, 10_000_000),
                'lines' => static fn () => json_encode(array_map('md5', file('php://input'))),
                'copy' => static function (): mixed {
                    $to = tempnam(sys_get_temp_dir(), 'copy');
                    $done = copy('php://input', $to);
                    $text = file_get_contents($to);
                    unlink($to);
                    return ($done ? 'copied ' : 'not copied ') . md5($text);
                },
                'readfile' => static function (): mixed {
                    ob_start();
                    $length = readfile('php://input');
                    return $length . md5(ob_get_clean());
                },
                'passthru' => static function (): mixed {
                    ob_start();
                    $length = fpassthru(fopen('php://input', 'r'));
                    return $length . md5(ob_get_clean());
                },
                'stream' => static function (): mixed {
                    $input = fopen('php://input', 'rb');
                    $steps = [ftell($input), fread($input, 4), ftell($input), feof($input), fgetc($input), rewind($input), fread($input, 2)];
                    $steps[] = md5(stream_get_contents($input));
                    $steps[] = feof($input);
                    $steps[] = fseek($input, 2);
                    $steps[] = ftell($input);
                    $steps[] = md5(stream_get_contents($input, -1, 1));
                    $steps[] = stream_get_contents($input, 3, 0);
                    $steps[] = fread($input, 10) !== false;
                    return json_encode($steps);
                },
                'end' => static function (): mixed {
                    $input = fopen('php://input', 'rb');
                    $steps = [fseek($input, 0, SEEK_END), ftell($input), fseek($input, -2, SEEK_CUR), fread($input, 10), fread($input, 1), feof($input)];
                    return json_encode($steps);
                },
                'write' => static function (): mixed {
                    $input = fopen('php://input', 'w+');
                    return json_encode([is_resource($input), fwrite($input, 'x'), fread($input, 3), ftruncate($input, 0), fflush($input)]);
                },
                'append' => static fn () => json_encode(file_put_contents('php://input', 'x')),
                'stat' => static function (): mixed {
                    $input = fopen('php://input', 'r');
                    return json_encode([fstat($input), is_file('php://input'), file_exists('php://input'), filesize('php://input'), is_readable('php://input')]);
                },
                'filter' => static fn () => file_get_contents('php://filter/read=convert.base64-encode/resource=php://input'),
                'filters' => static fn () => file_get_contents('php://filter/string.toupper|string.rot13/resource=php://input'),
                'filter-path' => static fn () => file_get_contents('PHP://Filter/string.toupper/string.rot13/resource=PHP://input'),
                'filter-nested' => static fn () => file_get_contents('php://filter/string.rot13/resource=php://filter/string.toupper/resource=php://input'),
                'filter-file' => static fn () => file_get_contents('php://filter/string.toupper/resource=' . __DIR__ . '/file.txt'),
                'filter-none' => static fn () => file_get_contents('php://filter/string.toupper'),
                'filter-unknown' => static fn () => file_get_contents('php://filter/no.such/resource=php://input'),
                'filter-write' => static function (): mixed {
                    ob_start();
                    file_put_contents('php://filter/write=string.toupper/resource=php://output', 'abc');
                    return ob_get_clean();
                },
                'filter-copy' => static fn () => md5(stream_get_contents(fopen('php://filter/read=string.toupper/resource=php://input', 'r'), -1, 2)),
                'append-filter' => static function (): mixed {
                    $input = fopen('php://input', 'r');
                    stream_filter_append($input, 'string.toupper');
                    return stream_get_contents($input);
                },
                'hash' => static fn () => hash_file('sha256', 'php://input') . md5_file('php://input'),
                'zlib' => static fn () => file_get_contents('compress.zlib://php://input'),
                'inflate' => static fn () => file_get_contents('php://filter/zlib.deflate/convert.base64-encode/resource=php://input'),
                'spl' => static function (): mixed {
                    $file = new SplFileObject('php://input');
                    $lines = [];
                    foreach ($file as $line) {
                        $lines[] = md5($line);
                    }
                    return json_encode($lines);
                },
                'include' => static fn () => json_encode(include 'php://input'),
                'include-filter' => static fn () => json_encode(include 'php://filter/string.tolower/resource=php://input'),
                'include-nested' => static fn () => json_encode(include 'php://filter/read=string.tolower/resource=php://filter/resource=php://input'),
                'include-layers' => static fn () => json_encode([
                    include 'compress.zlib://php://input',
                    include 'php://filter/resource=compress.zlib://php://input',
                    include 'php://filter/RESOURCE=a/resource=data:,<?php echo 1;',
                    include 'php://filter/resource=compress.zlib://data:,<?php echo 1;',
                    include 'php://fd/0',
                    include 'PHP://Input',
                ]),
                'include-data' => static fn () => json_encode(include 'php://filter/resource=data:,text'),
                'include-file' => static fn () => json_encode(include 'php://filter/string.toupper/resource=' . __DIR__ . '/file.txt'),
                'include-memory' => static fn () => json_encode(include 'php://memory'),
                'include-stdin' => static fn () => json_encode(include 'php://stdin'),
                'include-allowed' => static fn () => json_encode([ini_get('allow_url_include'), ini_set('allow_url_include', '1')]),
                'memory' => static function (): mixed {
                    $memory = fopen('php://memory', 'w+');
                    $steps = [fwrite($memory, "one\ntwo\n"), rewind($memory), fgets($memory), ftell($memory), fwrite($memory, 'X'), rewind($memory), stream_get_contents($memory)];
                    $steps[] = ftruncate($memory, 3);
                    rewind($memory);
                    $steps[] = stream_get_contents($memory);
                    $steps[] = fstat($memory)['size'];
                    return json_encode($steps);
                },
                'temp' => static function (): mixed {
                    $temp = fopen('php://temp/maxmemory:10', 'r+');
                    fwrite($temp, str_repeat('y', 100));
                    fseek($temp, -5, SEEK_END);
                    return fread($temp, 50);
                },
                'append-memory' => static function (): mixed {
                    $temp = fopen('php://temp', 'a+');
                    fwrite($temp, 'one');
                    rewind($temp);
                    fwrite($temp, 'two');
                    return stream_get_contents($temp, -1, 0);
                },
                'xml' => static fn () => simplexml_load_file('php://input') === false ? 'no XML' : 'XML',
                'picture' => static fn () => json_encode(getimagesize('php://input')),
                'ini' => static fn () => json_encode(parse_ini_file('php://input')),
                'scan' => static fn () => json_encode([is_dir('php://input'), opendir('php://input'), unlink('php://input'), rename('php://input', '/tmp/never'), mkdir('php://never')]),
                'unknown' => static fn () => json_encode(fopen('php://no-such', 'r')),
                'select' => static function (): mixed {
                    $read = [fopen('php://input', 'r')];
                    $none = null;
                    return json_encode(stream_select($read, $none, $none, 0));
                },
                'context' => static fn () => file_get_contents('php://input', false, stream_context_create(['http' => ['method' => 'POST']])),
            ][$of] ?? static fn () => 'unknown');
        }
        header('Content-Type: application/json');
        echo json_encode($results, JSON_INVALID_UTF8_SUBSTITUTE | JSON_PRETTY_PRINT);
    },
    // Functions of FrankenPHP, which only resident workers have.
    '/early-hints' => static function (): void {
        header('Link: </style.css>; rel=preload; as=style');
        headers_send(103);
        frankenphp_log('a line of the script', FRANKENPHP_LOG_LEVEL_WARN, ['key' => 'value']);
        header('X-Later: 1');
        echo frankenphp_request_headers()['X-Asked'], ' ', frankenphp_response_headers()['X-Later'];
    },
    '/count-variables' => static function (): void {
        echo count($_POST);
    },
    '/shutdown' => static function (): void {
        register_shutdown_function(static function (): void {
            echo ', at the end';
        });
        echo 'body';
    },
    // Sessions and states.
    '/session' => static function (): void {
        if (isset($_GET['limiter'])) {
            session_cache_limiter($_GET['limiter']);
        }
        session_start();
        $_SESSION['count'] = ($_SESSION['count'] ?? 0) + 1;
        echo $_SESSION['count'];
    },
    '/change' => static function (): void {
        ini_set('date.timezone', 'Asia/Tokyo');
        ini_set('precision', '3');
        ini_set('default_charset', 'iso-8859-1');
        ini_set('default_mimetype', 'text/plain');
        setlocale(LC_ALL, 'C.UTF-8');
        date_default_timezone_set('Asia/Tokyo');
        error_reporting(0);
        set_error_handler(static fn (): bool => true);
        mt_srand(7);
        umask(0);
        putenv('LEFT=behind');
        chdir('/');
        mb_internal_encoding('ISO-8859-1');
        header('X-Left: behind');
        http_response_code(404);
        ob_start();
        $_SERVER['LEFT'] = $_GET['left'] = $_ENV['LEFT'] = 'behind';
        ignore_user_abort(true);
        echo 'changed';
    },
    '/show' => static function (): void {
        echo json_encode([
            ini_get('date.timezone'), ini_get('precision'), ini_get('default_charset'), ini_get('default_mimetype'),
            setlocale(LC_ALL, '0'), date_default_timezone_get(), error_reporting(), umask(), getenv('LEFT'), getcwd(),
            mb_internal_encoding(), headers_list(), http_response_code(), $_SERVER['LEFT'] ?? null, $_GET, $_ENV['LEFT'] ?? null,
            error_get_last(), ignore_user_abort(), session_status(),
        ]);
    },
];

if (isset($_SERVER['FRANKENPHP_WORKER']) && !isset($_SERVER['REQUEST_METHOD'])) {
    return $scripts;
}
($scripts[strtok($_SERVER['REQUEST_URI'], '?')] ?? static fn () => http_response_code(404))();
