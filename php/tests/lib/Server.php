<?php

/** The server side for tests: boots workers over FastCGI, and uses the wire protocol (php/WIRE.md) with them. */

declare(strict_types=1);

namespace Apus\Tests;

final class Server
{
    public readonly string $folder;
    /** @var resource */
    private $listener;
    /** @var resource|null the FastCGI server's process */
    private $process = null;
    private string $fastcgi;

    /**
     * @param 'cgi'|'own'|'fpm'|'pool' $model `own` and `pool` are php-cgi and PHP-FPM whose functions the runtime replaces
     * @param array<string, string> $settings more settings of PHP
     * @param bool $areFixed whether an administrator made these settings, which scripts cannot change then
     */
    public function __construct(
        public readonly string $model,
        private int $processes = 2,
        private array $settings = [],
        private bool $areFixed = false,
    ) {
        $this->folder = sys_get_temp_dir() . '/apus-php-' . getmypid() . '-' . bin2hex(random_bytes(3));
        mkdir($this->folder);
        mkdir($this->folder . '/sessions');
        $this->fastcgi = $this->folder . '/fastcgi.sock';
        $listener = stream_socket_server('unix://' . $this->folder . '/apus.sock');
        if ($listener === false) {
            throw new \RuntimeException('cannot listen');
        }
        $this->listener = $listener;
        $this->start();
    }

    private function start(): void
    {
        $settings = [
            'session.save_path' => $this->folder . '/sessions',
            'upload_tmp_dir' => $this->folder,
            'upload_max_filesize' => '600K',
            'post_max_size' => '4M',
            'max_file_uploads' => '5',
            'max_input_vars' => '1000',
            'memory_limit' => '64M',
            'display_errors' => '1',
            'html_errors' => '0',
            'log_errors' => '1',
            'error_log' => '',
            'opcache.validate_timestamps' => '1',
            'opcache.revalidate_freq' => '0',
        ];
        if ($this->isFpm()) {
            $config = $this->folder . '/fpm.conf';
            $text = "[global]\nerror_log = {$this->folder}/fpm.log\ndaemonize = no\n[t]\nlisten = {$this->fastcgi}\npm = static\n"
                . "pm.max_children = {$this->processes}\ncatch_workers_output = no\n";
            foreach ($settings as $name => $value) {
                $text .= "php_admin_value[$name] = \"$value\"\n";
            }
            foreach ($this->settings as $name => $value) {
                $text .= ($this->areFixed ? 'php_admin_value' : 'php_value') . "[$name] = \"$value\"\n";
            }
            if ($this->model === 'pool') {
                $text .= 'php_admin_value[disable_functions] = ' . REPLACED . "\n";
            }
            // The application could not change display_errors if it was an admin value.
            $text = str_replace('php_admin_value[display_errors]', 'php_value[display_errors]', $text);
            $text = str_replace('php_admin_value[memory_limit]', 'php_value[memory_limit]', $text);
            if (posix_geteuid() === 0) {
                $text .= "user = root\ngroup = root\n";
            }
            file_put_contents($config, $text);
            $command = [self::program('php-fpm'), '-F', '-y', $config];
            if (posix_geteuid() === 0) {
                $command[] = '-R';
            }
        } else {
            $command = [self::program('php-cgi'), '-b', $this->fastcgi];
            foreach ($this->settings + $settings as $name => $value) {
                array_push($command, '-d', "$name=$value");
            }
            if ($this->model === 'own') {
                array_push($command, '-d', 'disable_functions=${disable_functions},' . REPLACED);
            }
        }
        $environment = ['PATH' => (string) getenv('PATH'), 'PHP_FCGI_CHILDREN' => (string) $this->processes, 'PHP_FCGI_MAX_REQUESTS' => '0'];
        $null = ['file', '/dev/null', 'r'];
        $log = ['file', $this->folder . '/output', 'a'];
        $process = proc_open($command, [$null, $log, $log], $pipes, $this->folder, $environment);
        if ($process === false) {
            throw new \RuntimeException('cannot start ' . $command[0]);
        }
        $this->process = $process;
        wait(fn () => file_exists($this->fastcgi) && @stream_socket_client('unix://' . $this->fastcgi) !== false, 'the FastCGI server listens');
    }

    public function isFpm(): bool
    {
        return $this->model === 'fpm' || $this->model === 'pool';
    }

    /** Whether the runtime replaces functions of PHP. */
    public function replaces(): bool
    {
        return $this->model === 'own' || $this->model === 'pool';
    }

    /** The newest of the installed programs with this name. */
    private static function program(string $name): string
    {
        $found = [];
        foreach (['/usr/sbin', '/usr/bin', '/usr/local/sbin', '/usr/local/bin'] as $folder) {
            $found = [...$found, ...(glob("$folder/$name*") ?: [])];
        }
        $found = array_filter($found, static fn (string $path): bool => preg_match("#/$name(\d+\.\d+)?$#", $path) === 1);
        if ($found === []) {
            throw new \RuntimeException("$name is missing: apt-get install php-cgi php-fpm");
        }
        return (string) end($found);
    }

    /**
     * Boots a worker and waits until it is ready.
     *
     * @param array<string, string> $more parameters of the boot request
     */
    public function worker(string $mode, string $script, array $more = []): Worker
    {
        $worker = $this->boot($mode, $script, $more);
        $worker->expectReady();
        return $worker;
    }

    /** @param array<string, string> $more */
    public function boot(string $mode, string $script, array $more = []): Worker
    {
        $token = bin2hex(random_bytes(16));
        $request = FastCgi::request($this->fastcgi, $more + [
            'REQUEST_METHOD' => 'GET',
            'SCRIPT_FILENAME' => RUNTIME,
            'SCRIPT_NAME' => '/apus.php',
            'DOCUMENT_ROOT' => dirname($script),
            'GATEWAY_INTERFACE' => 'CGI/1.1',
            'SERVER_SOFTWARE' => 'Apus',
            'REDIRECT_STATUS' => '200',
            'APUS_SOCKET' => $this->folder . '/apus.sock',
            'APUS_TOKEN' => $token,
            'APUS_MODE' => $mode,
            'APUS_SCRIPT' => $script,
        ]);
        $socket = @stream_socket_accept($this->listener, 10);
        if ($socket === false) {
            $request->poll();
            throw new \RuntimeException("no worker connects: {$request->stdout} {$request->stderr}");
        }
        $worker = new Worker($socket, $request);
        $hello = $worker->expect(HELLO);
        preg_match_all('/^(\w+): (.*)$/m', $hello['payload'], $lines);
        $worker->hello = array_combine($lines[1], $lines[2]);
        check($worker->hello['token'], $token, 'token');
        return $worker;
    }

    /**
     * Sends the same request to the script over plain FastCGI.
     *
     * @param array<string, string> $parameters
     * @return array{int, array<string, list<string>>, string}
     */
    public function plain(array $parameters, string $body = ''): array
    {
        $request = FastCgi::request($this->fastcgi, $parameters + ['REDIRECT_STATUS' => '200', 'GATEWAY_INTERFACE' => 'CGI/1.1'], $body);
        $request->wait();
        $request->close();
        return $request->response();
    }

    public function stop(): void
    {
        if ($this->process !== null) {
            proc_terminate($this->process, 15);
            $process = $this->process;
            wait(static fn () => !proc_get_status($process)['running'], 'the FastCGI server ends');
            proc_close($this->process);
            $this->process = null;
        }
        fclose($this->listener);
        exec('rm -rf ' . escapeshellarg($this->folder));
    }

    /** The output of PHP outside of requests. */
    public function output(): string
    {
        return (string) @file_get_contents($this->folder . '/output') . (string) @file_get_contents($this->folder . '/fpm.log');
    }
}
