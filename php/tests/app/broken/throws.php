<?php

throw new RuntimeException("not today");
