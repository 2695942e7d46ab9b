<?php

require_once __DIR__ . '/ClassLoader.php';

return Composer\Autoload\ClassLoader::get();
