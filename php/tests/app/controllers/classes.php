<?php

// Controllers, middlewares and services for the tests.

declare(strict_types=1);

namespace App\Home {

    use App\Basket;
    use App\Clock;
    use App\Greeter;
    use Apus\Controller;
    use Apus\Request;
    use Apus\Response;

    final class IndexController extends Controller
    {
        private int $calls = 0;

        public function __construct(private Basket $basket)
        {
        }

        /** As in FireRabbit: nothing is returned. */
        public function index(): void
        {
            $this->showMessage('<p>' . ++$this->calls . " {$this->request->path()}</p>");
        }

        public function missing(): Response
        {
            return $this->showMessage('<p>nothing</p>', 404);
        }

        public function template(): Response
        {
            return $this->show('page', ['title' => 'T', 'text' => 'x']);
        }

        public function silent(): void
        {
        }

        /** @return array<mixed> */
        public function services(string $name, Greeter $greeter, Request $request, Clock $clock, Basket $basket, int $more = 5): array
        {
            $basket->items[] = $name;
            return [$greeter->greet($name), $request->path(), $clock->number, $this->basket === $basket, $basket->items, $more];
        }
    }
}

namespace App\Home\Deep {

    final class PlainController
    {
        public function show(int $id): string
        {
            return "plain $id";
        }
    }
}

namespace App {

    use Apus\LibraryState;
    use Apus\Request;
    use Apus\Response;

    /** Lives as long as the worker. */
    final class Clock
    {
        private static int $made = 0;
        public readonly int $number;

        public function __construct()
        {
            $this->number = ++self::$made;
        }
    }

    interface Greeter
    {
        public function greet(string $name): string;
    }

    final class EnglishGreeter implements Greeter
    {
        public function __construct(private string $word)
        {
        }

        public function greet(string $name): string
        {
            return "$this->word $name";
        }
    }

    /** Belongs to a request. */
    final class Basket
    {
        /** @var list<string> */
        public array $items = [];

        public function __construct(public readonly Request $request)
        {
        }
    }

    /** Would keep the basket of a request for the next one. */
    final class Shelf
    {
        public function __construct(public readonly Basket $basket)
        {
        }
    }

    final class Stamp
    {
        private int $calls = 0;

        public function __construct(private Basket $basket)
        {
        }

        public function handle(Request $request, callable $next): Response
        {
            $this->basket->items[] = 'stamped';
            return $next($request)->header('X-Stamp', (string) ++$this->calls);
        }
    }

    final class One
    {
        public function __construct(public readonly Two $two)
        {
        }
    }

    final class Two
    {
        public function __construct(public readonly One $one)
        {
        }
    }

    /** A library with state. */
    final class Library implements LibraryState
    {
        public static int $value = 0;
        private int $saved = 0;

        public function save(): void
        {
            $this->saved = self::$value;
        }

        public function restore(): void
        {
            if (self::$value === 13) {
                throw new \RuntimeException('an unlucky value');
            }
            self::$value = $this->saved;
        }
    }
}
