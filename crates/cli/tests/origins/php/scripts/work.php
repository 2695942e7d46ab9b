<?php
// Works for some milliseconds, and says for whom.
usleep(1000 * (int) ($_GET['ms'] ?? 0));
header('X-Worker: ' . getmypid());
echo 'worked for ', $_GET['who'] ?? 'nobody';
