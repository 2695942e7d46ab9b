<?php

// A front controller that declares functions, so that it cannot be included twice.

echo said($_GET['say'] ?? 'nothing');

function said(string $what): string
{
    return "said $what";
}
