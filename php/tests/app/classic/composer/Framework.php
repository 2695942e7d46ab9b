<?php

/** Responds with the number of requests of this process. */
class Framework
{
    private static int $count = 0;

    public function run(): void
    {
        set_error_handler(static fn (int $level, string $text) => throw new ErrorException($text));
        echo 'framework ', ++self::$count;
    }
}
