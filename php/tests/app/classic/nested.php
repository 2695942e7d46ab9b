<?php

// Its functions are in a file that it includes each time.

header('X-Nested: 1');
require __DIR__ . '/functions.php';
