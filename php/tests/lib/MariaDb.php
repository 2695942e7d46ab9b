<?php

/** A MariaDB with an empty database, for all tests of a run. */

declare(strict_types=1);

namespace Apus\Tests;

final class MariaDb
{
    private static ?self $instance = null;
    private string $socket;

    public static function get(): self
    {
        return self::$instance ??= new self();
    }

    private function __construct()
    {
        $this->socket = (new DatabaseServer('mariadb'))->folder . '/db.sock';
        (new \PDO("mysql:unix_socket={$this->socket}", 'root', ''))->exec('CREATE DATABASE test2');
    }

    /** @return array<string, string> of a boot request, for the test application */
    public function parameters(): array
    {
        return ['TEST_DSN' => "mysql:unix_socket={$this->socket};dbname=test2", 'TEST_USER' => 'root', 'TEST_PASSWORD' => ''];
    }

    /** @return array<string, string> for Eloquent */
    public function connection(): array
    {
        return ['driver' => 'mysql', 'unix_socket' => $this->socket, 'database' => 'test2', 'username' => 'root', 'password' => ''];
    }

    /** @return array<string, string> for examples/rabbit */
    public function rabbit(): array
    {
        return ['RABBIT_SOCKET' => $this->socket, 'RABBIT_DATABASE' => 'test2', 'RABBIT_USER' => 'root', 'RABBIT_PASSWORD' => ''];
    }
}
