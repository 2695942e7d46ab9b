<?php

namespace Composer\Autoload;

/** As much of Composer's as an application needs. */
class ClassLoader
{
    private static ?self $loader = null;

    public static function get(): self
    {
        if (self::$loader === null) {
            self::$loader = new self();
            spl_autoload_register(static function (string $class): void {
                require __DIR__ . "/$class.php";
            });
        }
        return self::$loader;
    }
}
