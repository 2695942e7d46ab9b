<?php

// A front controller like those of frameworks: an autoloader, and classes that do the work.

define('BEGAN', microtime(true));
require __DIR__ . '/autoload.php';
(new Framework())->run();
