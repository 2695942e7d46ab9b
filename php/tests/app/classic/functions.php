<?php

// A front controller with functions of its own: it cannot be included twice.

echo said($_GET['say'] ?? 'nothing');

function said(string $what): string
{
    return "said $what";
}
