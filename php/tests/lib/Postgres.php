<?php

/** A PostgreSQL for all tests of a run. */

declare(strict_types=1);

namespace Apus\Tests;

final class Postgres
{
    private static ?self $instance = null;
    private DatabaseServer $server;

    public static function get(): self
    {
        return self::$instance ??= new self();
    }

    private function __construct()
    {
        $this->server = new DatabaseServer('postgres');
    }

    /** @return array<string, string> for Eloquent */
    public function connection(): array
    {
        return ['driver' => 'pgsql', 'host' => $this->server->folder, 'database' => 'postgres', 'username' => 'apus', 'password' => ''];
    }
}
