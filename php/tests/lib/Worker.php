<?php

/** A connection to a worker, from the server's side. */

declare(strict_types=1);

namespace Apus\Tests;

final class Worker
{
    /** @var array<string, string> */
    public array $hello = [];
    public string $ready = '';
    /** @var list<array{level: int, text: string}> */
    public array $logs = [];
    /** @var list<array{kind: int, flags: int, name: string, bytes: string}> */
    public array $commands = [];
    public int $memory = 0;
    public ?string $bye = null;

    /** @param resource $socket */
    public function __construct(private $socket, public readonly FastCgi $boot)
    {
        // Long enough for a busy machine.
        stream_set_timeout($socket, 60);
        stream_set_chunk_size($socket, 65536);
    }

    public function expectReady(): void
    {
        $frame = $this->frame();
        while ($frame['type'] === LOG) {
            $this->note($frame);
            $frame = $this->frame();
        }
        if ($frame['type'] !== READY) {
            $this->boot->poll();
            throw new Failure("no READY but {$frame['type']}: {$frame['payload']} {$this->boot->stdout} {$this->boot->stderr}");
        }
        $this->ready = $frame['payload'];
    }

    /** @return array{type: int, flags: int, payload: string} */
    public function expect(int $type): array
    {
        $frame = $this->frame();
        if ($frame['type'] !== $type) {
            throw new Failure("frame $type was due, {$frame['type']} came: " . substr($frame['payload'], 0, 500));
        }
        return $frame;
    }

    /** @return array{type: int, flags: int, payload: string} */
    public function frame(): array
    {
        $head = $this->take(8);
        ['l' => $length, 't' => $type, 'f' => $flags, 'r' => $reserved] = unpack('Vl/Ct/Cf/vr', $head);
        check($reserved, 0, 'the reserved bytes of a frame');
        return ['type' => $type, 'flags' => $flags, 'payload' => $length > 0 ? $this->take($length) : ''];
    }

    private function take(int $length): string
    {
        $data = '';
        while (strlen($data) < $length) {
            $part = fread($this->socket, $length - strlen($data));
            if ($part === false || $part === '') {
                $this->boot->poll();
                $why = stream_get_meta_data($this->socket)['timed_out'] ? 'says nothing' : 'is gone';
                throw new WorkerGone("the worker $why: {$this->boot->stdout} {$this->boot->stderr}");
            }
            $data .= $part;
        }
        return $data;
    }

    public function send(int $type, string $payload = '', int $flags = 0): void
    {
        fwrite($this->socket, pack('VCCv', strlen($payload), $type, $flags, 0) . $payload);
    }

    /** Sends raw bytes. */
    public function raw(string $bytes): void
    {
        fwrite($this->socket, $bytes);
    }

    /** @param array<string, string> $parameters */
    public function request(array $parameters, string $body = '', int $piece = 0): Response
    {
        $this->begin($parameters, $body, $piece > 0);
        return $this->response($body, $piece);
    }

    /** @param array<string, string> $parameters */
    public function begin(array $parameters, string $body = '', bool $pulled = false): void
    {
        $this->raw(self::frameOf($parameters, $body, $pulled));
    }

    /**
     * The bytes of a REQUEST.
     *
     * @param array<string, string> $parameters
     */
    public static function frameOf(array $parameters, string $body = '', bool $pulled = false): string
    {
        $serialized = serialize(array_map('strval', $parameters));
        $flags = ($pulled ? 1 : 0) | (($parameters['REQUEST_METHOD'] ?? '') === 'HEAD' ? 2 : 0);
        $payload = pack('V', strlen($serialized)) . $serialized . ($pulled ? '' : $body);
        return pack('VCCv', strlen($payload), REQUEST, $flags, 0) . $payload;
    }

    /** @param array<string, string> $parameters */
    public function event(array $parameters, string $bytes = ''): Response
    {
        $serialized = serialize($parameters);
        $this->send(EVENT, pack('V', strlen($serialized)) . $serialized . $bytes);
        return $this->response();
    }

    /** Reads a response; the body is sent in pieces when it is pulled. */
    public function response(string $body = '', int $piece = 0): Response
    {
        $this->logs = [];
        $this->commands = [];
        $response = null;
        $given = 0;
        while (true) {
            $frame = $this->frame();
            $payload = $frame['payload'];
            switch ($frame['type']) {
                case LOG:
                case COMMAND:
                    $this->note($frame);
                    break;
                case PULL:
                    $most = min($piece, unpack('V', $payload)[1]);
                    $part = substr($body, $given, $most);
                    $given += strlen($part);
                    $this->send(BODY, $part, $given === strlen($body) ? 1 : 0);
                    break;
                case RESPONSE:
                    $response = Response::of($payload);
                    $this->memory = $response->memory;
                    if (($frame['flags'] & 1) === 0) {
                        return $this->ended($response, $frame['flags']);
                    }
                    $response->streamed = true;
                    break;
                case CHUNK:
                    if ($response === null) {
                        throw new Failure('a CHUNK before its RESPONSE');
                    }
                    $response->body .= $payload;
                    $response->chunks++;
                    if ($frame['flags'] & 1) {
                        check($payload, '', 'the last chunk');
                        return $this->ended($response, $frame['flags']);
                    }
                    break;
                case BYE:
                    $this->bye = $payload;
                    throw new WorkerGone("BYE $payload");
                default:
                    throw new Failure("frame {$frame['type']} in a response");
            }
        }
    }

    private function ended(Response $response, int $flags): Response
    {
        $response->pulled = 0;
        if ($flags & 4) {
            $this->bye = $this->expect(BYE)['payload'];
        }
        $response->busy = ($flags & 2) !== 0;
        $response->broken = ($flags & 8) !== 0;
        return $response;
    }

    /** @param array{type: int, flags: int, payload: string} $frame */
    private function note(array $frame): void
    {
        $payload = $frame['payload'];
        if ($frame['type'] === LOG) {
            $this->logs[] = ['level' => ord($payload[0]), 'text' => substr($payload, 1)];
            return;
        }
        $length = unpack('V', $payload, 1)[1];
        $this->commands[] = ['kind' => ord($payload[0]), 'flags' => $frame['flags'], 'name' => substr($payload, 5, $length), 'bytes' => substr($payload, 5 + $length)];
    }

    /** Sends STOP, and waits for BYE and the end of the FastCGI request. */
    public function stop(): void
    {
        $this->send(STOP);
        check($this->expect(BYE)['payload'], 'stop', 'BYE');
        $this->end();
    }

    /** Waits for the end of the FastCGI request. */
    public function end(): void
    {
        $this->boot->wait();
        $this->close();
    }

    public function close(): void
    {
        if (is_resource($this->socket)) {
            fclose($this->socket);
        }
        $this->boot->close();
    }

    /** CPU seconds of the process so far. */
    public function cpu(): float
    {
        $stat = explode(' ', (string) file_get_contents("/proc/{$this->hello['pid']}/stat"));
        return ((int) $stat[13] + (int) $stat[14]) / 100;
    }
}
