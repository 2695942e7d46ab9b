<?php

/** A response of a worker. */

declare(strict_types=1);

namespace Apus\Tests;

final class Response
{
    public bool $streamed = false;
    public bool $busy = false;
    public bool $broken = false;
    public int $chunks = 0;
    public int $pulled = 0;

    /** @param array<string, list<string>> $fields by lower-case name */
    private function __construct(public int $status, public array $fields, public string $body, public int $memory)
    {
    }

    public static function of(string $payload): self
    {
        ['s' => $status, 'r' => $reserved, 'm' => $memory, 'l' => $length] = unpack('vs/vr/Vm/Vl', $payload);
        check($reserved, 0, 'the reserved bytes of a response');
        return new self($status, self::fields(substr($payload, 12, $length)), substr($payload, 12 + $length), $memory);
    }

    /** @return array<string, list<string>> */
    public static function fields(string $block): array
    {
        $fields = [];
        foreach (explode("\r\n", $block) as $line) {
            if ($line !== '') {
                [$name, $value] = explode(':', $line, 2) + [1 => ''];
                $fields[strtolower($name)][] = trim($value);
            }
        }
        return $fields;
    }

    public function field(string $name): ?string
    {
        return $this->fields[strtolower($name)][0] ?? null;
    }

    public function json(): mixed
    {
        return json_decode($this->body, true, 64, JSON_THROW_ON_ERROR);
    }
}
