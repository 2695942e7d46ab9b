<?php

/** A FastCGI client, as small as the tests need it: one request, whose response is read as it arrives. */

declare(strict_types=1);

namespace Apus\Tests;

final class FastCgi
{
    public string $stdout = '';
    public string $stderr = '';
    public bool $ended = false;
    private string $buffer = '';

    /** @param resource $socket */
    private function __construct(private $socket)
    {
    }

    /** @param array<string, string> $parameters */
    public static function request(string $path, array $parameters, string $body = ''): self
    {
        $socket = stream_socket_client('unix://' . $path, $code, $message, 5);
        if ($socket === false) {
            throw new \RuntimeException("cannot connect to $path: $message");
        }
        $pairs = '';
        foreach ($parameters as $name => $value) {
            $pairs .= self::length(strlen($name)) . self::length(strlen($value)) . $name . $value;
        }
        $out = self::record(1, pack('nC6', 1, 0, 0, 0, 0, 0, 0));
        foreach (str_split($pairs, 65000) as $part) {
            $out .= self::record(4, $part);
        }
        $out .= self::record(4, '');
        foreach ($body === '' ? [] : str_split($body, 65000) as $part) {
            $out .= self::record(5, $part);
        }
        fwrite($socket, $out . self::record(5, ''));
        stream_set_blocking($socket, false);
        return new self($socket);
    }

    private static function length(int $length): string
    {
        return $length < 128 ? chr($length) : pack('N', $length | 0x80000000);
    }

    private static function record(int $type, string $body): string
    {
        return pack('CCnnCC', 1, $type, 1, strlen($body), 0, 0) . $body;
    }

    /** Reads what is there. */
    public function poll(): void
    {
        $data = @fread($this->socket, 65536);
        while (is_string($data) && $data !== '') {
            $this->buffer .= $data;
            $data = @fread($this->socket, 65536);
        }
        while (strlen($this->buffer) >= 8) {
            ['t' => $type, 'l' => $length, 'p' => $padding] = unpack('Cv/Ct/ni/nl/Cp', $this->buffer);
            if (strlen($this->buffer) < 8 + $length + $padding) {
                break;
            }
            $body = substr($this->buffer, 8, $length);
            $this->buffer = substr($this->buffer, 8 + $length + $padding);
            match ($type) {
                6 => $this->stdout .= $body,
                7 => $this->stderr .= $body,
                3 => $this->ended = true,
                default => null,
            };
        }
        if (feof($this->socket)) {
            $this->ended = true;
        }
    }

    /** Waits for the end. */
    public function wait(float $seconds = 10): self
    {
        $until = microtime(true) + $seconds;
        $this->poll();
        while (!$this->ended && microtime(true) < $until) {
            $read = [$this->socket];
            $none = null;
            stream_select($read, $none, $none, 0, 200000);
            $this->poll();
        }
        if (!$this->ended) {
            throw new \RuntimeException('the FastCGI request does not end');
        }
        return $this;
    }

    /** @return array{int, array<string, list<string>>, string} status, field lines by lower-case name, body */
    public function response(): array
    {
        [$head, $body] = explode("\r\n\r\n", $this->stdout, 2) + [1 => ''];
        $fields = Response::fields($head . "\r\n");
        $status = (int) ($fields['status'][0] ?? 200);
        unset($fields['status']);
        return [$status, $fields, $body];
    }

    public function close(): void
    {
        if (is_resource($this->socket)) {
            fclose($this->socket);
        }
    }
}
