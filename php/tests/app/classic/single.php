<?php

// A front controller without other files, which can be included repeatedly.

define('SINGLE', 1);
$count = ($count ?? 0) + 1;
$GLOBALS['kept'] ??= 0;
$GLOBALS['kept']++;
header('X-Mode: ' . ($_SERVER['PATH_INFO'] ?? 'none'));
if (($_GET['do'] ?? '') === 'exit') {
    exit('exited');
}
if (($_GET['do'] ?? '') === 'throw') {
    throw new RuntimeException('thrown in a test');
}
echo "count $count kept $kept ", basename((string) getcwd()), ' ', basename($_SERVER['SCRIPT_FILENAME'] ?? 'none');
