<?php

// Not PHP.
function {
