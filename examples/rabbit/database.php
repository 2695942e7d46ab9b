<?php

// Returns the connection of Eloquent to MariaDB, as the environment says. `php database.php` makes the table and fills it.

declare(strict_types=1);

use Apus\Eloquent;
use App\Model\User;
use Illuminate\Database\Capsule\Manager;
use Illuminate\Database\Schema\Blueprint;

$connection = [
    'driver' => 'mysql',
    'host' => getenv('RABBIT_HOST') ?: '127.0.0.1',
    'unix_socket' => getenv('RABBIT_SOCKET') ?: '',
    'database' => getenv('RABBIT_DATABASE') ?: 'rabbit',
    'username' => getenv('RABBIT_USER') ?: 'rabbit',
    'password' => getenv('RABBIT_PASSWORD') ?: '',
    'charset' => 'utf8mb4',
];
if (PHP_SAPI !== 'cli') {
    return $connection;
}

require getenv('APUS_PHP') ?: __DIR__ . '/../../php/apus.php';
Eloquent::connect($connection);
require __DIR__ . '/app/Model/User.php';
Manager::schema()->dropIfExists('users');
Manager::schema()->create('users', static function (Blueprint $table): void {
    $table->id();
    $table->string('name');
    $table->string('email')->unique();
});
$names = ['Ada Lovelace', 'Alan Turing', 'Grace Hopper', 'Edsger Dijkstra', 'Barbara Liskov', 'Donald Knuth'];
Manager::connection()->transaction(static function () use ($names): void {
    for ($number = 1; $number <= 1000; $number++) {
        $name = $names[($number - 1) % count($names)];
        User::create(['name' => $name, 'email' => strtolower(strtok($name, ' ')) . "$number@example.org"]);
    }
});
echo "1000 users\n";
