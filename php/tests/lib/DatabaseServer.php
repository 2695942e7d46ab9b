<?php

/** A database server on a Unix socket in its own folder, for all tests of a run. */

declare(strict_types=1);

namespace Apus\Tests;

final class DatabaseServer
{
    public readonly string $folder;
    /** @var resource */
    private $process;
    /** @var array<int, resource> */
    private array $pipes = [];

    /** @param 'postgres'|'mariadb' $kind */
    public function __construct(string $kind)
    {
        $this->folder = sys_get_temp_dir() . "/apus-$kind-" . getmypid();
        $command = [__DIR__ . '/../../../crates/tools/testkit/serve', $kind, $this->folder];
        $this->process = proc_open($command, [['pipe', 'r'], ['pipe', 'w'], STDERR], $this->pipes)
            ?: throw new \RuntimeException("cannot start $kind");
        if (fgets($this->pipes[1]) !== "ready\n") {
            throw new \RuntimeException("$kind does not start; `make tools` installs it");
        }
        register_shutdown_function($this->stop(...));
    }

    /** It ends with its input, and removes its folder. */
    private function stop(): void
    {
        fclose($this->pipes[0]);
        proc_close($this->process);
    }
}
