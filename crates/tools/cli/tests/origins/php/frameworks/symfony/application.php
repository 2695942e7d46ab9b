<?php
// The same small application on Symfony's kernel.
use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\Cookie;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\RedirectResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\StreamedResponse;
use Symfony\Component\HttpKernel\Kernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

require_once '/usr/share/php/Symfony/Bundle/FrameworkBundle/autoload.php';

if (!class_exists(App::class, false)) {
    class App extends Kernel
    {
        use MicroKernelTrait;

        public function registerBundles(): iterable
        {
            return [new FrameworkBundle()];
        }

        public function getProjectDir(): string
        {
            return __DIR__;
        }

        public function getCacheDir(): string
        {
            return __DIR__ . '/storage/cache';
        }

        public function getLogDir(): string
        {
            return __DIR__ . '/storage';
        }

        protected function configureContainer(ContainerConfigurator $container): void
        {
            $container->extension('framework', [
                'secret' => 'of a test', 'http_method_override' => false, 'router' => ['utf8' => true], 'php_errors' => ['log' => false],
                'session' => ['storage_factory_id' => 'session.storage.factory.native', 'handler_id' => null,
                    'cookie_samesite' => 'lax', 'cookie_secure' => 'auto'],
            ]);
        }

        protected function configureRoutes(RoutingConfigurator $routes): void
        {
            foreach (['form' => ['/', 'GET'], 'greet' => ['/greet', 'POST'], 'greeting' => ['/greeting', 'GET'],
                         'upload' => ['/upload', 'POST'], 'user' => ['/users/{id}', 'GET'], 'put' => ['/users/{id}', 'PUT'],
                         'stream' => ['/stream', 'GET']] as $name => [$path, $method]) {
                $routes->add($name, $path)->methods([$method])->controller([self::class, $name]);
            }
        }

        public function form(Request $request): Response
        {
            $token = $request->getSession()->get('token') ?? bin2hex(random_bytes(16));
            $request->getSession()->set('token', $token);
            return new Response('<!doctype html><title>app</title><form action="/greet" method="post">'
                . '<input name="_token" value="' . $token . '"><input name="name"></form>');
        }

        public function greet(Request $request): Response
        {
            if ($request->request->get('_token') !== $request->getSession()->get('token', '')) {
                return new Response('expired', 419);
            }
            $request->getSession()->set('name', $request->request->get('name'));
            $response = new RedirectResponse('http' . ($request->isSecure() ? 's' : '') . '://' . $request->getHttpHost() . '/greeting');
            $response->headers->setCookie(Cookie::create('visited', 'yes', time() + 3600));
            return $response;
        }

        public function greeting(Request $request): Response
        {
            $name = htmlspecialchars($request->getSession()->get('name', 'stranger'));
            return new Response("Hello, $name! " . $request->cookies->get('visited', 'first visit'));
        }

        public function upload(Request $request): Response
        {
            $file = $request->files->get('file');
            return new JsonResponse(['name' => $file->getClientOriginalName(), 'size' => $file->getSize(),
                'sha256' => hash_file('sha256', $file->getPathname()), 'note' => $request->request->get('note')]);
        }

        public function user(Request $request, string $id): Response
        {
            return new JsonResponse(['id' => (int) $id, 'query' => $request->query->all(), 'url' => $request->getSchemeAndHttpHost()
                . $request->getPathInfo(), 'secure' => $request->isSecure(), 'ip' => $request->getClientIp()]);
        }

        public function put(Request $request, string $id): Response
        {
            return new JsonResponse(['id' => (int) $id] + json_decode($request->getContent(), true), 201);
        }

        public function stream(): Response
        {
            return new StreamedResponse(function () {
                for ($number = 0; $number < 1000; $number++) {
                    echo str_pad((string) $number, 99, '.'), "\n";
                }
            });
        }
    }
}
