<?php

// Where the users are: SQLite in the temporary folder, or what the environment says, such as
// EXAMPLE_DSN="mysql:host=127.0.0.1;dbname=example;charset=utf8mb4" EXAMPLE_USER=example EXAMPLE_PASSWORD=secret
// (as environment, or as FastCGI parameters). `php database.php` makes the table and fills it.

declare(strict_types=1);

namespace Example;

use Apus\Db;
use PDO;

const SQLITE = 'apus-example.sqlite';

/** @return array{string, ?string, ?string} DSN, user, password */
function address(): array
{
    $file = sys_get_temp_dir() . '/' . SQLITE;
    return [getenv('EXAMPLE_DSN') ?: "sqlite:$file", getenv('EXAMPLE_USER') ?: null, getenv('EXAMPLE_PASSWORD') ?: null];
}

function fill(PDO $pdo): void
{
    $pdo->exec('DROP TABLE IF EXISTS users');
    $pdo->exec('CREATE TABLE users (
        id INTEGER PRIMARY KEY, name VARCHAR(100) NOT NULL, email VARCHAR(200) NOT NULL, joined VARCHAR(10) NOT NULL
    )');
    $insert = $pdo->prepare('INSERT INTO users (id, name, email, joined) VALUES (?, ?, ?, ?)');
    $names = ['Ada Lovelace', 'Alan Turing', 'Grace Hopper', 'Edsger Dijkstra', 'Barbara Liskov', 'Donald Knuth'];
    $pdo->beginTransaction();
    for ($id = 1; $id <= 1000; $id++) {
        $name = $names[$id % count($names)];
        $mail = strtolower(strtok($name, ' ')) . "$id@example.org";
        $insert->execute([$id, $name, $mail, sprintf('20%02d-%02d-01', $id % 25, $id % 12 + 1)]);
    }
    $pdo->commit();
}

[$dsn, $user, $password] = address();
if (PHP_SAPI === 'cli') {
    fill(new PDO($dsn, $user, $password, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]));
    echo "filled $dsn\n";
    return;
}
if (str_starts_with($dsn, 'sqlite:') && !is_file(substr($dsn, 7))) {
    // Made beside and moved into place: two workers may boot at once.
    $temporary = substr($dsn, 7) . '.' . getmypid();
    fill(new PDO("sqlite:$temporary", null, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]));
    rename($temporary, substr($dsn, 7));
}
Db::configure($dsn, $user, $password);
