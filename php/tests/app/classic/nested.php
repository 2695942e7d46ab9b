<?php

// A front controller that includes a file with functions.

header('X-Nested: 1');
require __DIR__ . '/functions.php';
