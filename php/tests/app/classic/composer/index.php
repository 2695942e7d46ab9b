<?php

// A front controller as frameworks have it: an autoloader, and classes that do the work.

define('BEGAN', microtime(true));
require __DIR__ . '/autoload.php';
(new Framework())->run();
