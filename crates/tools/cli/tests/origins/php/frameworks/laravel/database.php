<?php
// Makes the database with a user, and the tables of the queue. Run by `stack`.
declare(strict_types=1);

$file = __DIR__ . '/storage/database.sqlite';
@unlink($file);
$database = new PDO("sqlite:$file", null, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
$database->exec('CREATE TABLE users (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, password TEXT NOT NULL, remember_token TEXT
)');
$database->exec('CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, payload TEXT NOT NULL, attempts INTEGER NOT NULL, reserved_at INTEGER,
    available_at INTEGER NOT NULL, created_at INTEGER NOT NULL
)');
$database->exec('CREATE TABLE failed_jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, uuid TEXT NOT NULL UNIQUE, connection TEXT NOT NULL, queue TEXT NOT NULL, payload TEXT NOT NULL,
    exception TEXT NOT NULL, failed_at TEXT NOT NULL
)');
$database->exec('CREATE TABLE letters (id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL, text TEXT NOT NULL, attempt INTEGER NOT NULL)');
$insert = $database->prepare('INSERT INTO users (name, email, password) VALUES (?, ?, ?)');
foreach (['Ada', 'Grace'] as $name) {
    $password = password_hash("password of $name", PASSWORD_BCRYPT, ['cost' => 4]);
    $insert->execute([$name, strtolower($name) . '@app.test', $password]);
}
