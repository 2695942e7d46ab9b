<?php

echo "a last word";
exit;
