<?php
// Sleeps for some milliseconds, and prints the name of the client.
usleep(1000 * (int) ($_GET['ms'] ?? 0));
header('X-Worker: ' . getmypid());
echo 'worked for ', $_GET['who'] ?? 'nobody';
