<?php

echo "talking at boot";
require __DIR__ . "/../hello.php";
