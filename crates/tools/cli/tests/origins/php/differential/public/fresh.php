<?php

/** Includes the scripts, so that a resident worker handles one request only. */

require __DIR__ . '/index.php';
