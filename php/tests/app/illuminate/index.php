<?php

// An application with Eloquent and Blade for the tests.

declare(strict_types=1);

use Apus\App;
use Apus\Blade;
use Apus\Eloquent;
use Apus\HttpException;
use Apus\Request;
use Illuminate\Database\Capsule\Manager;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Database\Events\QueryExecuted;

Eloquent::connect(json_decode((string) getenv('TEST_CONNECTION'), true));
Blade::views(__DIR__ . '/views', (string) getenv('TEST_COMPILED'))->share('site', 'Swifts');

/** @property string $name */
final class Bird extends Model
{
    public $timestamps = false;
    protected $fillable = ['name'];
}

$app = new App();
$app->get('/make', static function (): int {
    Manager::schema()->dropIfExists('birds');
    Manager::schema()->create('birds', static function ($table): void {
        $table->id();
        $table->string('name');
    });
    foreach (['swift', 'martin', 'swallow'] as $name) {
        Bird::create(['name' => $name]);
    }
    return Bird::count();
});
$app->get('/birds/{id:int}', static fn (int $id): Bird => Bird::find($id) ?? throw new HttpException(404));
$app->get('/birds', static fn (): mixed => Bird::orderBy('id')->paginate(2));
$app->get('/count', static fn (): int => Bird::count());

// What a request may leave behind.
$app->get('/open', static function (Request $request): string {
    Manager::connection()->beginTransaction();
    Bird::query()->delete();
    $request->query('savepoint') !== null && Manager::connection()->beginTransaction();
    return (string) Manager::connection()->transactionLevel();
});
$app->get('/open-pdo', static function (): string {
    Manager::connection()->getPdo()->beginTransaction();
    Bird::query()->delete();
    return 'open';
});
$app->get('/open-exit', static function (): never {
    Manager::connection()->beginTransaction();
    Bird::query()->delete();
    exit('left');
});
$app->get('/open-ended', static function (): string {
    // The connection counts a transaction that PDO does not know any more.
    Manager::connection()->beginTransaction();
    Manager::connection()->getPdo()->rollBack();
    return 'ended';
});
$app->get('/level', static fn (): array => [Manager::connection()->transactionLevel(), Manager::connection()->getPdo()->inTransaction()]);
$app->get('/transaction', static fn (): mixed => Manager::connection()->transaction(static function (): int {
    Bird::create(['name' => 'kite']);
    return Bird::count();
}));
$app->get('/log', static function (): array {
    $before = [Manager::connection()->logging(), count(Manager::connection()->getQueryLog())];
    Manager::connection()->enableQueryLog();
    Bird::find(1);
    return [...$before, count(Manager::connection()->getQueryLog())];
});
$app->get('/listen', static function (): int {
    // Listeners of earlier requests would count, too.
    static $heard = 0;
    Manager::connection()->listen(static function (QueryExecuted $query) use (&$heard): void {
        $heard++;
    });
    $heard = 0;
    Bird::find(1);
    return $heard;
});
$app->get('/unguard', static function (): array {
    $before = [Model::isUnguarded(), Model::preventsLazyLoading()];
    Model::unguard();
    Model::preventLazyLoading();
    return $before;
});

$app->get('/default', static function (): string {
    $before = Manager::connection()->getName();
    Model::getConnectionResolver()->setDefaultConnection('other');
    return $before;
});

// The connection gets lost.
$connection = json_decode((string) getenv('TEST_CONNECTION'), true);
$isMaria = $connection['driver'] === 'mysql';
$id = static fn (): int => (int) Manager::connection()->selectOne($isMaria ? 'SELECT CONNECTION_ID() AS id' : 'SELECT pg_backend_pid() AS id')->id;
$app->get('/id', $id);
$app->get('/selects', static fn (): int => (int) Manager::connection()->selectOne("SHOW SESSION STATUS LIKE 'Com_select'")->Value);
$kill = static function () use ($connection, $isMaria, $id): void {
    $killed = $id();
    $dsn = $isMaria ? "mysql:unix_socket={$connection['unix_socket']}" : "pgsql:host={$connection['host']};dbname={$connection['database']}";
    $other = new PDO($dsn, $connection['username'], $connection['password']);
    $other->query($isMaria ? "KILL $killed" : "SELECT pg_terminate_backend($killed)");
    $list = $isMaria ? 'information_schema.processlist WHERE id' : 'pg_stat_activity WHERE pid';
    while ($other->query("SELECT COUNT(*) FROM $list = $killed")->fetchColumn() > 0) {
        usleep(1000);
    }
};
$app->get('/kill', static function (Request $request) use ($kill): int {
    $kill();
    $seconds = (float) $request->query('idle', '0');
    usleep((int) ($seconds * 1e6));
    return match ($request->query('then')) {
        'read' => Bird::count(),
        'write' => Bird::create(['name' => 'late'])->id,
        'begin' => Manager::connection()->transaction(static fn (): int => Bird::count()),
        default => 0,
    };
});
$app->get('/kill-open', static function () use ($kill): int {
    Manager::connection()->beginTransaction();
    Bird::query()->delete();
    $kill();
    return Bird::count();
});

// Blade.
$app->get('/view/{name:slug}', static fn (Request $request, string $name): string => Blade::view($name, ['text' => $request->query('text', '')]));
$app->get('/make-view', static fn (): mixed => Blade::factory()->make('plain', ['text' => 'made']));
$app->get('/share', static function (): string {
    Blade::factory()->share('site', 'mine');
    Blade::factory()->share('secret', 'of a request');
    Blade::factory()->composer('plain', static fn ($view) => $view->with('text', 'composed'));
    Blade::factory()->addLocation(__DIR__ . '/views/components');
    return Blade::view('plain', ['text' => 'x']);
});
$app->get('/half', static function (): string {
    Blade::factory()->startSection('body');
    echo 'of the last request';
    Blade::factory()->stopSection();
    Blade::factory()->startPush('scripts', 'pushed before');
    return 'half';
});
$app->get('/unfinished', static function (): int {
    $engine = Blade::factory()->getEngineResolver()->resolve('blade');
    return count((new ReflectionProperty($engine, 'lastCompiled'))->getValue($engine));
});
$app->error(DomainException::class, static fn (Throwable $error): string => "handled {$error->getMessage()}");

$app->run();
