<?php
// Log-in with Laravel's guard, and letters that a queue writes: `php artisan queue:work`.
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Foundation\Auth\User as Authenticatable;
use Illuminate\Foundation\Bus\Dispatchable;
use Illuminate\Http\Request;
use Illuminate\Queue\InteractsWithQueue;
use Illuminate\Support\Facades\Auth;
use Illuminate\Support\Facades\DB;

class User extends Authenticatable
{
    public $timestamps = false;
}

class Letter implements ShouldQueue
{
    use Dispatchable;
    use InteractsWithQueue;

    public int $tries = 2;

    public function __construct(private int $user, private string $text)
    {
    }

    public function handle(): void
    {
        if ($this->text === 'fails once' && $this->attempts() === 1 || $this->text === 'fails') {
            throw new RuntimeException('the letter is lost');
        }
        DB::table('letters')->insert(['user_id' => $this->user, 'text' => $this->text, 'attempt' => $this->attempts()]);
    }
}

function accounts(Illuminate\Routing\Router $router): void
{
    $router->post('/login', function (Request $request) {
        $credentials = $request->validate(['email' => 'required|email', 'password' => 'required']);
        if (!Auth::attempt($credentials, $request->boolean('remember'))) {
            return response('wrong', 403);
        }
        $request->session()->regenerate();
        return redirect()->intended('/account');
    });
    $router->middleware(Authenticate::class)->group(function () use ($router) {
        $router->get('/account', fn () => 'Hello, ' . e(Auth::user()->name) . '! ' . csrf_token());
        $router->post('/logout', function (Request $request) {
            Auth::logout();
            $request->session()->invalidate();
            $request->session()->regenerateToken();
            return redirect('/');
        });
        $router->post('/letters', function (Request $request) {
            Letter::dispatch(Auth::id(), $request->validate(['text' => 'required|max:80'])['text']);
            return response('queued', 202);
        });
        $router->post('/letters/now', function (Request $request) {
            Letter::dispatchAfterResponse(Auth::id(), $request->input('text'));
            return response('after the response', 202);
        });
        $router->post('/abandoned', function () {
            DB::beginTransaction();
            DB::table('letters')->delete();
            return 'the transaction is open';
        });
        $router->get('/letters', fn () => DB::table('letters')->where('user_id', Auth::id())->orderBy('id')->get(['text', 'attempt']));
    });
}

class Authenticate extends Illuminate\Auth\Middleware\Authenticate
{
    protected function redirectTo($request)
    {
        return '/';
    }
}
