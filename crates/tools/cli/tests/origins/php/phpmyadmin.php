<?php
// The configuration of phpMyAdmin for tests: the script `stack` replaces FOLDER.
$cfg['blowfish_secret'] = substr(hash('sha256', 'FOLDER'), 0, 32);
$cfg['Servers'][1] = [
    'auth_type' => 'cookie',
    'socket' => 'FOLDER/db.sock',
    'host' => 'localhost',
    'AllowNoPassword' => false,
];
$cfg['TempDir'] = 'FOLDER/tmp';
$cfg['VersionCheck'] = false;
$cfg['SendErrorReports'] = 'never';
