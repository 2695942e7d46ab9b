<?php

// What scripts do with the buffer of php.ini's output_buffering. It declares nothing, so that it can be included repeatedly.
echo 'before ';
switch ($_GET['do'] ?? '') {
    case 'download':
        if (ob_get_level() > 0) {
            ob_end_clean();
        }
        echo 'data';
        break;
    case 'loop':
        while (ob_get_level() > 0) {
            ob_end_clean();
        }
        echo 'data';
        break;
    case 'clean':
        @ob_clean();
        echo 'after';
        break;
    case 'much':
        echo str_repeat('x', 150), str_repeat('y', 10);
        @ob_end_clean();
        echo 'end';
        break;
    case 'end':
        @ob_end_flush();
        echo ob_get_level();
        break;
    case 'nested':
        ob_start();
        echo 'inner ', ob_get_level(), ' ', ob_get_length();
        break;
    case 'flush':
        @ob_flush();
        flush();
        echo ob_get_level();
        break;
}
