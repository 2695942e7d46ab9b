<?php

// A worker script with one pair of actions for each state of docs/resident-php.md: how a request changes it, and how another
// one sees it.

declare(strict_types=1);

final class KeptStream
{
    /** @var resource|null */
    public $context;
    public static string $seen = '';

    public function stream_open(string $path, string $mode, int $options, ?string &$opened): bool
    {
        self::$seen = (string) json_encode(stream_context_get_options($this->context ?? stream_context_create()));
        return false;
    }

    /** @return array<string, int> */
    public function url_stat(string $path, int $flags): array
    {
        return ['size' => 1, 'mode' => 0100444];
    }
}

final class KeptFilter extends php_user_filter
{
}

/** The options of the context with which libxml opens streams. */
function context_of_libxml(): string
{
    stream_wrapper_register('kept', KeptStream::class);
    KeptStream::$seen = 'not opened';
    @(new DOMDocument())->load('kept://x');
    stream_wrapper_unregister('kept');
    return KeptStream::$seen;
}

/** The type of the wrapper that opens an address. */
function wrapper_of(string $address): string
{
    $stream = @fopen($address, 'r');
    return $stream === false ? 'none' : stream_get_meta_data($stream)['wrapper_type'];
}

/** Functions that PHP deprecated are state, too. */
function quietly(callable $do): mixed
{
    $level = error_reporting(E_ALL & ~E_DEPRECATED);
    $result = $do();
    error_reporting($level);
    return $result;
}

/** Whether the next random number is the one of this seed. */
function is_seeded(callable $seed): bool
{
    $next = mt_rand();
    quietly($seed);
    return $next === mt_rand();
}

$session = static fn () => [session_id(), session_status(), isset($_SESSION)];
$handler = static function (): array {
    $handlers = [set_error_handler(null), set_exception_handler(null)];
    restore_error_handler();
    restore_exception_handler();
    return array_map(get_debug_type(...), $handlers);
};

/** By name: extension, a change, what shows it. */
$restored = [
    'ini_set' => ['standard', fn () => ini_set('precision', '3'), fn () => ini_get('precision')],
    'error_reporting' => ['Core', fn () => error_reporting(1), fn () => error_reporting()],
    'set_include_path' => ['standard', fn () => set_include_path('/nowhere'), fn () => get_include_path()],
    'ignore_user_abort' => ['standard', fn () => ignore_user_abort(true), fn () => ignore_user_abort()],
    'set_time_limit' => ['standard', fn () => set_time_limit(77), fn () => ini_get('max_execution_time')],
    'gc_disable' => ['Core', fn () => gc_disable(), fn () => gc_enabled()],
    'assert_options' => ['standard', fn () => quietly(fn () => assert_options(ASSERT_ACTIVE, ini_get('assert.active') ? 0 : 1)), fn () => ini_get('assert.active')],
    'assert_options, callback' => ['standard', fn () => quietly(fn () => assert_options(ASSERT_CALLBACK, fn () => 1)), fn () => quietly(fn () => get_debug_type(assert_options(ASSERT_CALLBACK)))],
    'set_error_handler' => ['Core', fn () => set_error_handler(fn () => true), $handler],
    'set_exception_handler' => ['Core', fn () => set_exception_handler(fn () => null), $handler],
    'error_get_last' => ['standard', fn () => @trigger_error('left'), fn () => error_get_last()],
    'setlocale' => ['standard', fn () => setlocale(LC_ALL, 'C.UTF-8'), fn () => setlocale(LC_ALL, '0')],
    'setlocale of one category' => ['standard', fn () => setlocale(LC_TIME, 'C.UTF-8'), fn () => setlocale(LC_ALL, '0')],
    'date_default_timezone_set' => ['date', fn () => date_default_timezone_set('Asia/Shanghai'), fn () => date('e P', 0)],
    'date_get_last_errors' => ['date', fn () => date_create('nonsense'), fn () => date_get_last_errors()],
    'umask' => ['standard', fn () => umask(0o77), fn () => umask()],
    'chdir' => ['standard', fn () => chdir('/'), fn () => getcwd()],
    'putenv' => ['standard', fn () => putenv('APUS_KEPT=1'), fn () => getenv('APUS_KEPT')],
    'putenv of a variable that exists' => ['standard', fn () => putenv('PATH=/nowhere'), fn () => getenv('PATH')],
    '$_ENV' => ['standard', fn () => $_ENV['KEPT'] = 1, fn () => $_ENV],
    '$_SERVER' => ['standard', fn () => $_SERVER['KEPT'] = 1, fn () => $_SERVER['KEPT'] ?? null],
    'mt_srand' => ['standard', fn () => mt_srand(7), fn () => is_seeded(fn () => mt_srand(7))],
    'mt_srand, old mode' => ['standard', fn () => quietly(fn () => mt_srand(7, MT_RAND_PHP)), fn () => is_seeded(fn () => mt_srand(7, MT_RAND_PHP))],
    'srand' => ['standard', fn () => srand(7), fn () => is_seeded(fn () => srand(7))],
    'strtok' => ['standard', fn () => strtok('one secret', ' '), fn () => strtok(' ')],
    'header, http_response_code' => ['standard', function (): void {
        header('X-Kept: 1');
        http_response_code(418);
    }, fn () => [headers_list(), http_response_code()]],
    'ob_start' => ['standard', fn () => ob_start(), fn () => count(ob_list_handlers())],
    'stream_wrapper_register' => ['standard', fn () => stream_wrapper_register('kept', KeptStream::class), fn () => in_array('kept', stream_get_wrappers(), true)],
    'stream_wrapper_unregister' => ['standard', fn () => stream_wrapper_unregister('http'), fn () => in_array('http', stream_get_wrappers(), true)],
    'a wrapper of a request in the place of data:' => ['standard', function (): void {
        stream_wrapper_unregister('data');
        stream_wrapper_register('data', KeptStream::class);
    }, fn () => wrapper_of('data:,x')],
    'a wrapper of a request in the place of php:' => ['standard', function (): void {
        stream_wrapper_unregister('php');
        stream_wrapper_register('php', KeptStream::class);
    }, fn () => wrapper_of('php://memory')],
    'a wrapper of a request in the place of file:' => ['standard', function (): void {
        stream_wrapper_unregister('file');
        stream_wrapper_register('file', KeptStream::class);
    }, fn () => wrapper_of('file://' . __FILE__)],
    'spl_autoload_extensions' => ['SPL', fn () => spl_autoload_extensions('.kept'), fn () => spl_autoload_extensions()],
    'json_last_error' => ['json', fn () => json_decode('{'), fn () => json_last_error_msg()],
    'preg_last_error' => ['pcre', fn () => @preg_match('/(?:\D+|<\d+>)*[!?]/', 'foobar foobar foobar'), fn () => preg_last_error_msg()],
    'session_start' => ['session', function (): void {
        session_start();
        $_SESSION['kept'] = 1;
    }, $session],
    'session_id' => ['session', fn () => session_id('kept'), $session],
    'mb_internal_encoding' => ['mbstring', fn () => mb_internal_encoding('ISO-8859-1'), fn () => mb_internal_encoding()],
    'mb_http_output' => ['mbstring', fn () => mb_http_output('SJIS'), fn () => mb_http_output()],
    'mb_language' => ['mbstring', fn () => mb_language('Japanese'), fn () => mb_language()],
    'mb_detect_order' => ['mbstring', fn () => mb_detect_order(['SJIS', 'EUC-JP']), fn () => mb_detect_order()],
    'mb_substitute_character' => ['mbstring', fn () => mb_substitute_character('none'), fn () => mb_substitute_character()],
    'mb_regex_encoding' => ['mbstring', fn () => mb_regex_encoding('EUC-JP'), fn () => mb_regex_encoding()],
    'mb_regex_set_options' => ['mbstring', fn () => mb_regex_set_options('i'), fn () => mb_regex_set_options()],
    'mb_ereg_search_init' => ['mbstring', function (): void {
        mb_ereg_search_init('secret', 's');
        mb_ereg_search_regs();
    }, fn () => [mb_ereg_search_getregs(), mb_ereg_search_getpos()]],
    'iconv_set_encoding' => ['iconv', fn () => quietly(fn () => iconv_set_encoding('internal_encoding', 'EUC-JP')), fn () => iconv_get_encoding('internal_encoding')],
    'Locale::setDefault' => ['intl', fn () => Locale::setDefault('de_DE'), fn () => Locale::getDefault()],
    'intl_get_error_code' => ['intl', fn () => Normalizer::normalize("\xff"), fn () => intl_get_error_message()],
    'textdomain, bindtextdomain' => ['gettext', function (): void {
        textdomain('kept');
        bindtextdomain('kept', '/tmp');
        bindtextdomain('messages', '/tmp');
    }, fn () => [textdomain(null), bindtextdomain('kept', null), bindtextdomain('messages', null)]],
    'bcscale' => ['bcmath', fn () => bcscale(5), fn () => bcadd('1', '2')],
    'gmp_random_seed' => ['gmp', fn () => gmp_random_seed(7), function (): string {
        $one = gmp_intval(gmp_random_bits(31));
        gmp_random_seed(7);
        return $one === gmp_intval(gmp_random_bits(31)) ? 'seeded' : 'random';
    }],
    'libxml_use_internal_errors' => ['libxml', function (): void {
        libxml_use_internal_errors(true);
        simplexml_load_string('<');
    }, fn () => [libxml_use_internal_errors(), count(libxml_get_errors())]],
    'libxml_set_streams_context' => ['dom', fn () => libxml_set_streams_context(stream_context_create(['http' => ['header' => 'secret']])), context_of_libxml(...)],
    'libxml_set_external_entity_loader' => ['libxml', fn () => libxml_set_external_entity_loader(fn () => null), fn () => @(new DOMDocument())->load('php://filter/resource=data:,%3Cx/%3E')],
    'libxml_disable_entity_loader' => ['libxml', fn () => quietly(fn () => libxml_disable_entity_loader(true)), context_of_libxml(...)],
    'use_soap_error_handler' => ['soap', fn () => use_soap_error_handler(true), function (): bool {
        $used = use_soap_error_handler(false);
        use_soap_error_handler($used);
        return $used;
    }],
    'mysqli_report' => ['mysqli', fn () => mysqli_report(MYSQLI_REPORT_OFF), fn () => (new mysqli_driver())->report_mode],
    'openssl_error_string' => ['openssl', fn () => @openssl_pkey_get_private('nonsense'), fn () => openssl_error_string()],
    'socket_last_error' => ['sockets', fn () => @socket_connect(socket_create(AF_UNIX, SOCK_STREAM, 0), '/nowhere'), fn () => socket_last_error()],
    'imap_errors' => ['imap', fn () => @imap_open('{nowhere}', 'a', 'b', OP_HALFOPEN), fn () => imap_errors()],
    'snmp_set_quick_print' => ['snmp', fn () => snmp_set_quick_print(true), fn () => snmp_get_quick_print()],
    'snmp_set_valueretrieval' => ['snmp', fn () => snmp_set_valueretrieval(SNMP_VALUE_PLAIN), fn () => snmp_get_valueretrieval()],
    'pcntl_signal' => ['pcntl', fn () => pcntl_signal(SIGTERM, fn () => null), fn () => get_debug_type(pcntl_signal_get_handler(SIGTERM))],
    'pcntl_async_signals' => ['pcntl', fn () => pcntl_async_signals(true), fn () => pcntl_async_signals()],
];

/** State that cannot be restored: the worker is replaced. */
$replaced = [
    'stream_context_set_default' => ['standard', fn () => stream_context_set_default(['http' => ['header' => 'Authorization: secret']])],
    'an option of the default context' => ['standard', fn () => stream_context_set_option(stream_context_get_default(), 'ssl', 'verify_peer', false)],
    'output_add_rewrite_var' => ['standard', fn () => output_add_rewrite_var('kept', 'secret')],
    'the callback of the default context' => ['standard', fn () => stream_context_set_params(stream_context_get_default(), ['notification' => fn () => null])],
];

/** State that stays, and is logged. */
$logged = [
    'stream_filter_register' => ['standard', fn () => stream_filter_register('kept', KeptFilter::class), 'stream filter kept'],
    'a global variable' => ['standard', fn () => $GLOBALS['kept'] = 1, 'global variable $kept'],
];

/** State that stays: the application is responsible. */
$stays = [
    'define' => ['standard', fn () => define('KEPT', 1), fn () => defined('KEPT')],
    'spl_autoload_register' => ['SPL', fn () => spl_autoload_register(fn () => null), fn () => count(spl_autoload_functions())],
    'session_name' => ['session', fn () => session_name('KEPT'), fn () => session_name()],
    'session_cache_limiter' => ['session', fn () => session_cache_limiter('public'), fn () => session_cache_limiter()],
    'session_set_cookie_params' => ['session', fn () => session_set_cookie_params(77), fn () => session_get_cookie_params()['lifetime']],
    'class_alias' => ['Core', fn () => class_alias(KeptStream::class, 'KeptAlias'), fn () => class_exists('KeptAlias', false)],
    'bindtextdomain of a domain that is not the current one' => ['gettext', fn () => bindtextdomain('kept-too', '/tmp'), fn () => bindtextdomain('kept-too', null)],
];

$tables = ['restored' => $restored, 'replaced' => $replaced, 'logged' => $logged, 'stays' => $stays];
$handle = static function () use ($tables): void {
    ['table' => $table, 'name' => $name, 'do' => $do] = $_GET + ['table' => '', 'name' => '', 'do' => 'list'];
    if ($do === 'list') {
        $present = static fn (array $rows): array => array_keys(array_filter($rows, static fn (array $row): bool => extension_loaded($row[0])));
        echo json_encode(array_map($present, $tables));
        return;
    }
    [, $change, $see] = $tables[$table][$name] + [2 => static fn () => null];
    if ($do === 'change') {
        $change();
    }
    if (is_callable($see)) {
        // Output before it would be in its buffers.
        $seen = json_encode($see(), JSON_THROW_ON_ERROR | JSON_PARTIAL_OUTPUT_ON_ERROR);
        echo $seen;
    } elseif ($do === 'see') {
        echo json_encode($see);
    }
};
while (frankenphp_handle_request($handle)) {
}
