<?php

/** Finds and runs the tests. */

declare(strict_types=1);

namespace Apus\Tests;

final class Suite
{
    private const MODELS = ['cgi', 'own', 'fpm', 'pool'];

    /**
     * @param list<string> $words only tests with all of these in their names
     * @return int the exit status
     */
    public static function run(array $words): int
    {
        $failed = [];
        $passed = 0;
        $began = microtime(true);
        foreach (self::syntax() as $error) {
            $failed[] = $error;
        }
        foreach (self::MODELS as $model) {
            $server = null;
            foreach (self::cases() as $name => [$test, $models]) {
                $full = "$model: $name";
                if (!in_array($model, $models, true) || !self::matches($full, $words)) {
                    continue;
                }
                $server ??= new Server($model);
                try {
                    $test($server);
                    $passed++;
                    echo "ok      $full\n";
                } catch (\Throwable $error) {
                    $where = $error->getFile() . ':' . $error->getLine();
                    foreach ($error->getTrace() as $frame) {
                        if (str_contains($frame['file'] ?? '', '/cases/')) {
                            $where = $frame['file'] . ':' . $frame['line'];
                            break;
                        }
                    }
                    $failed[] = $full;
                    echo "FAILED  $full\n    $where\n    " . $error->getMessage() . "\n";
                    echo preg_replace('/^/m', '    | ', substr($server->output(), -2000)) . "\n";
                    $server->stop();
                    $server = null;
                }
            }
            $server?->stop();
        }
        printf("%d passed, %d failed, %.1f s\n", $passed, count($failed), microtime(true) - $began);
        foreach ($failed as $name) {
            echo "failed: $name\n";
        }
        return $failed === [] && $passed > 0 ? 0 : 1;
    }

    /** @param list<string> $words */
    private static function matches(string $name, array $words): bool
    {
        foreach ($words as $word) {
            if (!str_contains($name, $word)) {
                return false;
            }
        }
        return true;
    }

    /** @return array<string, array{\Closure, list<string>}> */
    private static function cases(): array
    {
        static $cases = null;
        if ($cases === null) {
            $cases = [];
            foreach (glob(__DIR__ . '/../cases/*.php') ?: [] as $file) {
                foreach (require $file as $name => $test) {
                    $models = self::MODELS;
                    if (is_array($test)) {
                        [$models, $test] = $test;
                    }
                    $cases[basename($file, '.php') . ': ' . $name] = [$test, $models];
                }
            }
        }
        return $cases;
    }

    /** @return list<string> files with a syntax error */
    private static function syntax(): array
    {
        $errors = [];
        $root = dirname(__DIR__, 2);
        $examples = dirname($root) . '/examples/{php,rabbit}/{*,*/*,*/*/*}.php';
        $files = [RUNTIME, ...(glob("$root/tests/*/*.php") ?: []), ...(glob($examples, GLOB_BRACE) ?: [])];
        foreach ($files as $file) {
            exec(escapeshellarg(PHP_BINARY) . ' -l ' . escapeshellarg($file) . ' 2>&1', $output, $status);
            if ($status !== 0) {
                $errors[] = "syntax of $file";
                echo implode("\n", $output) . "\n";
            }
        }
        return $errors;
    }
}
