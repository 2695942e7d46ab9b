<?php

/** A MariaDB of its own, on a Unix socket, for all tests of a run. */

declare(strict_types=1);

namespace Apus\Tests;

final class MariaDb
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
        $this->folder = sys_get_temp_dir() . '/apus-mariadb-' . getmypid();
        mkdir($this->folder);
        $user = posix_getpwuid(posix_geteuid())['name'];
        exec("mariadb-install-db --no-defaults --datadir={$this->folder}/data --auth-root-authentication-method=normal --user=$user 2>&1", $output, $status);
        if ($status !== 0) {
            throw new \RuntimeException("mariadb-install-db (apt-get install mariadb-server):\n" . implode("\n", $output));
        }
        $log = ['file', $this->folder . '/log', 'a'];
        $command = ['mariadbd', '--no-defaults', "--datadir={$this->folder}/data", "--socket={$this->folder}/sock", '--skip-networking', "--user=$user",
            "--pid-file={$this->folder}/pid", '--innodb-buffer-pool-size=16M', '--innodb-log-file-size=8M', ];
        $this->process = proc_open($command, [['file', '/dev/null', 'r'], $log, $log], $pipes) ?: throw new \RuntimeException('cannot start mariadbd');
        register_shutdown_function($this->stop(...));
        wait(function (): bool {
            try {
                new \PDO("mysql:unix_socket={$this->folder}/sock", 'root', '');
                return true;
            } catch (\PDOException) {
                return false;
            }
        }, 'MariaDB listens');
        (new \PDO("mysql:unix_socket={$this->folder}/sock", 'root', ''))->exec('CREATE DATABASE test2');
    }

    /** @return array<string, string> of a boot request, for the test application */
    public function parameters(): array
    {
        return ['TEST_DSN' => "mysql:unix_socket={$this->folder}/sock;dbname=test2", 'TEST_USER' => 'root', 'TEST_PASSWORD' => ''];
    }

    /** @return array<string, string> for Eloquent */
    public function connection(): array
    {
        return ['driver' => 'mysql', 'unix_socket' => "{$this->folder}/sock", 'database' => 'test2', 'username' => 'root', 'password' => ''];
    }

    /** @return array<string, string> for examples/rabbit */
    public function rabbit(): array
    {
        return ['RABBIT_SOCKET' => "{$this->folder}/sock", 'RABBIT_DATABASE' => 'test2', 'RABBIT_USER' => 'root', 'RABBIT_PASSWORD' => ''];
    }

    private function stop(): void
    {
        proc_terminate($this->process, 15);
        while (proc_get_status($this->process)['running']) {
            usleep(10000);
        }
        exec('rm -rf ' . escapeshellarg($this->folder));
    }
}
