<?php

/** A PostgreSQL of its own, on a Unix socket, for all tests of a run. */

declare(strict_types=1);

namespace Apus\Tests;

final class Postgres
{
    private static ?self $instance = null;
    private string $folder;
    /** @var resource */
    private $process;

    public static function get(): self
    {
        return self::$instance ??= new self();
    }

    private function __construct()
    {
        $this->folder = sys_get_temp_dir() . '/apus-postgres-' . getmypid();
        mkdir($this->folder);
        // It refuses to run as root.
        $as = [];
        if (posix_geteuid() === 0) {
            chown($this->folder, 'postgres');
            $as = ['setpriv', '--reuid=postgres', '--regid=postgres', '--clear-groups'];
        }
        $programs = glob('/usr/lib/postgresql/*/bin') ?: throw new \RuntimeException('PostgreSQL is missing: apt-get install postgresql');
        $log = ['file', $this->folder . '/log', 'a'];
        $start = fn (string ...$command) => proc_open(
            [...$as, ...$command],
            [['file', '/dev/null', 'r'], $log, $log],
            $pipes,
            $this->folder,
        ) ?: throw new \RuntimeException("cannot start {$command[0]}");
        $program = end($programs);
        $status = proc_close($start("$program/initdb", '--pgdata', "{$this->folder}/data", '--username=root', '--auth=trust', '--no-sync'));
        if ($status !== 0) {
            throw new \RuntimeException('initdb: ' . file_get_contents("{$this->folder}/log"));
        }
        $this->process = $start("$program/postgres", '-D', "{$this->folder}/data", '-k', $this->folder, '-c', 'listen_addresses=', '-c', 'fsync=off');
        register_shutdown_function($this->stop(...));
        wait(function (): bool {
            try {
                new \PDO("pgsql:host={$this->folder};dbname=postgres", 'root');
                return true;
            } catch (\PDOException) {
                return false;
            }
        }, 'PostgreSQL listens');
    }

    /** @return array<string, string> for Eloquent */
    public function connection(): array
    {
        return ['driver' => 'pgsql', 'host' => $this->folder, 'database' => 'postgres', 'username' => 'root', 'password' => ''];
    }

    private function stop(): void
    {
        // A fast shutdown, which waits for no client.
        proc_terminate($this->process, 2);
        while (proc_get_status($this->process)['running']) {
            usleep(10000);
        }
        exec('rm -rf ' . escapeshellarg($this->folder));
    }
}
